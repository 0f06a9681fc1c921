/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of other modules: headers of answers, and when a silent connection is given up. */
#pragma once

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"
