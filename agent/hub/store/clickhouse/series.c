/* SPDX-License-Identifier: Apache-2.0 */
/* Not made yet. */
#include "hub/store/clickhouse/clickhouse.h"

int store_ch_series(void *sink, const struct series_request *r, struct store_series *ret,
		    struct field_error *reterr)
{
	(void)sink, (void)r, (void)ret;
	return field_error_set(reterr, "store", "no series yet");
}
