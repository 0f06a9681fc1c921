/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary bytes as a message of Pyroscope's API, in both codecs: what is read, written as JSON
 * and read again is the same, a refusal says why, and JSON that is made of protobuf is JSON. The
 * first byte chooses the message and the codec. Fuzzes: hub/pyroscope/message_read.c,
 * hub/pyroscope/message_json.c
 */
#include "hub/pyroscope/message.h"
#include "lib/base/fuzzinput.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct pyroscope_message *const messages[] = {
	&pyroscope_profile_types_request,
	&pyroscope_label_values_request,
	&pyroscope_series_request,
	&pyroscope_select_series_request,
	&pyroscope_select_series_response,
	&pyroscope_select_merge_stacktraces_request,
	&pyroscope_select_merge_stacktraces_response,
	&pyroscope_select_heatmap_response,
	&pyroscope_diff_request,
	&pyroscope_pprof,
};

static void read_again(const struct pyroscope_message *m, const json_t *j)
{
	_cleanup_free_ char *text = json_dumps(j, JSON_REAL_PRECISION(17));
	_cleanup_json_ json_t *again = NULL;
	struct field_error e = {0};

	check(text && pyroscope_read(m, PYROSCOPE_JSON, text, strlen(text), &again, &e) == 0);
	check(json_equal(j, again));
}

static void write_json(const struct pyroscope_message *m, const void *p, size_t n)
{
	_cleanup_buf_ struct buf b = {0};
	_cleanup_json_ json_t *j = NULL;
	struct field_error e = {0};
	json_error_t error;
	int r = pyroscope_to_json(m, p, n, &b, &e);

	check(!r || (r == -EINVAL && e.reason[0]));
	if (!r)
		j = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, &error);
	check(r || j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const struct pyroscope_message *m;
	_cleanup_json_ json_t *j = NULL;
	struct field_error e = {0};
	unsigned how;
	int r;

	in.data = data;
	in.n = n;
	how = take();
	m = messages[how / 2 % ARRAY_SIZE(messages)];
	r = pyroscope_read(m, how % 2 ? PYROSCOPE_JSON : PYROSCOPE_PROTO, in.data, in.n, &j, &e);
	check(r == 0 || (r == -EINVAL && !j && e.reason[0] && e.path[0]));
	if (j)
		read_again(m, j);
	if (how % 2 == 0)
		write_json(m, in.data, in.n);
	return 0;
}
