// SPDX-License-Identifier: Apache-2.0
// Crash points for tests: with $KAIROS_KILL_AT = "stage" or "stage:N" the process kills itself with
// SIGKILL when it passes that stage for the Nth time. Built only with KAIROS_TEST_HOOKS.
#pragma once

namespace kairos {

#ifdef KAIROS_TEST_HOOKS
void StageHook(const char* stage);
#else
inline void StageHook(const char*) {}
#endif

}  // namespace kairos
