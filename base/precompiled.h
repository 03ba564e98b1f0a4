// SPDX-License-Identifier: Apache-2.0
// What sanitizer builds parse once for all files (kairos_precompiled in CMakeLists.txt). Nothing
// includes it, and a file names what it uses itself: the release build has no such header.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
