// SPDX-License-Identifier: Apache-2.0
// What is parsed once for all tests (kairos_precompiled in CMakeLists.txt). Nothing includes it.
#pragma once

#include <gtest/gtest.h>

#include "base/precompiled.h"
