// SPDX-License-Identifier: Apache-2.0
// Keeps the C functions of llguidance in the static library. Its header comes with the crate.
pub use llguidance::ffi::*;
