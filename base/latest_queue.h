// SPDX-License-Identifier: Apache-2.0
// What waits for somebody who may be slow, where only the latest value of each key matters. A value
// replaces an earlier one of its key that still waits, in that one's place, and says so.
// 1. At most items_max wait. One too many makes the last a notice with the key 0: values of other
//    keys were left out, that last one's included.
// 2. Key 0 is nobody's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

namespace kairos {

template <typename Key, typename Value>
class LatestQueue {
 public:
  struct Item {
    Key key;
    Value value;
    bool skipped = false;  // an earlier value of this key was replaced, or of all keys for key 0
  };

  explicit LatestQueue(size_t items_max) : items_max_(items_max) {}

  // `skipped`: something was left out before the value came here.
  void Push(Key key, Value value, bool skipped = false) {
    const auto found = std::find_if(items_.begin(), items_.end(),
                                    [&](const Item& item) { return item.key == key; });
    if (found != items_.end()) {
      *found = {key, std::move(value), true};
    } else if (items_.size() < items_max_) {
      items_.push_back({key, std::move(value), skipped});
    } else {
      items_.back() = {Key{}, Value{}, true};
    }
  }
  const Item& front() const { return items_.front(); }
  Item Pop() {
    Item first = std::move(items_.front());
    items_.pop_front();
    return first;
  }
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }

 private:
  size_t items_max_;
  std::deque<Item> items_;
};

}  // namespace kairos
