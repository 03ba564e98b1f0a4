// SPDX-License-Identifier: Apache-2.0
// Which thread owns an object, said in its type. Clang's capability analysis checks the
// annotations; debug builds also compare thread ids.
#pragma once

#if defined(__clang__)
#define KAIROS_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define KAIROS_THREAD_ATTRIBUTE(x)
#endif
#define KAIROS_CAPABILITY(name) KAIROS_THREAD_ATTRIBUTE(capability(name))
#define KAIROS_GUARDED_BY(role) KAIROS_THREAD_ATTRIBUTE(guarded_by(role))
#define KAIROS_REQUIRES(...) KAIROS_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define KAIROS_ASSERT_ROLE(role) KAIROS_THREAD_ATTRIBUTE(assert_capability(role))

namespace kairos {

class KAIROS_CAPABILITY("role") ThreadRole {
 public:
  // Tells the analysis that the caller runs on this role's thread.
  void Assert() const KAIROS_ASSERT_ROLE(this) {}
};

inline ThreadRole kConductor;
inline ThreadRole kIngress;
inline ThreadRole kEngine;
inline ThreadRole kJournal;

}  // namespace kairos
