// SPDX-License-Identifier: Apache-2.0
// A place for tests to stop a turn at. The path of a turn calls it at each of its stages, on the
// conductor's thread.
#pragma once

namespace kairos {

// Does nothing. The kairosd of the tests is linked with another one, tests/support/crash_points.cc.
void StageHook(const char* stage);

}  // namespace kairos
