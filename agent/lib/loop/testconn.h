/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of other modules: headers of answers, and times after which the kernel drops a silent
 * connection.
 */
#pragma once

#include "lib/loop/conn.h"
#include "lib/loop/http_parse.h"
