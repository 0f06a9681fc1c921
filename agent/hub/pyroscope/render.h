/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyroscope/render: the parameters of GET /pyroscope/render and /pyroscope/render-diff. No I/O.
 */
#pragma once

#include "lib/base/base.h"

/*
 * Reads the part of the URL behind '?' into an object like that of pyroscope_read(): a
 * SelectMergeStacktracesRequest, or of a difference a DiffRequest, whose sides have the format of
 * both. A format that is not known, and a groupBy, is the format -1. Times are Unix time in s, ms,
 * us or ns, by their size, or "now" or "now-1h"; without them, the last hour. Unknown parameters
 * are ignored. -EINVAL: reterr says which parameter is wrong. The caller owns *ret.
 */
int pyroscope_read_render(const char *parameters, bool diff, int64_t now_ms, json_t **ret,
			  struct field_error *reterr);
