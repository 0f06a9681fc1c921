/* SPDX-License-Identifier: Apache-2.0 */
/* tag_filter from arbitrary text: an answer or an error with a position, never both or neither. */
#include "hub/query/query.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	_cleanup_free_ char *text = xstrndup((const char *)data, n);
	struct predicate *p = NULL;
	struct field_error e = {0};
	int r = filter_parse(text, &p, &e);

	if (r && (p || !e.reason[0] || !str_has_prefix(e.path, "tag_filter:")))
		abort();
	predicate_free(p);
	return 0;
}
