/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the files of a namespace of 20 services with 1000 stacks each, nearly all of them seen,
 * as in a day: the bytes, and the CPU time from the rows of the store to the file.
 */
#include "hub/query/benchload.h"
#include "hub/query/query.h"
#include "lib/base/testdir.h"

#include <unistd.h>

#define T0	   1700000000
#define N_WINDOWS  100
#define ROUNDS	   5
#define GZIP_LEVEL 2 /* as the hub's */

static const struct selection day = {
	.event = EVENT_ON_CPU, .time_start_s = T0, .time_end_s = T0 + 86399};

static struct store *fill(char *dir)
{
	static struct load life = LOAD_LIFE(T0);
	const struct store_config c = {.kind = "sqlite", .path = dir};
	struct field_error e = {0};
	struct store *s;

	if (!mkdtemp(dir) || store_open(&c, &s, &e))
		bench_die(*e.reason ? e.reason : dir, errno);
	write_windows(&life, s, EVENT_ON_CPU, N_WINDOWS, ROWS_A_PROFILE);
	return s;
}

static struct query_file *read_rows(struct store *s)
{
	struct query_file *f = query_file_new(&day, NULL, NULL);
	struct store_summary summary = {0};
	struct field_error e = {0};
	char *place[] = {(char *)"app"};
	const struct scope app = {.places = place, .n_places = 1};

	if (store_read(s, &app, &day, query_file_add, f, &summary, &e))
		bench_die(e.reason, EIO);
	store_summary_done(&summary);
	return f;
}

static void report(const char *what, const char *format, double *values, size_t n, const char *unit)
{
	_cleanup_free_ char *name = xasprintf("formats.%s_%s", what, format);

	bench_rounds(name, values, n, unit, "", "");
}

static void bench_format(const struct query_file *f, const struct file_format_info *info)
{
	const struct profile_file file = {.event = day.event};
	double ms[ROUNDS], bytes = 0;

	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t from = thread_cpu_ns();
		_cleanup_buf_ struct buf plain = {0}, out = {0};

		if (profile_write(info->writer, query_file_batch(f), &file, &plain) ||
		    (info->flags & FILE_IS_GZIP &&
		     buf_add_gzip(&out, plain.data, plain.len, GZIP_LEVEL)))
			bench_die(info->name, E2BIG);
		ms[i] = (double)(thread_cpu_ns() - from) / 1e6;
		bytes = (double)(out.len ?: plain.len) / 1024;
	}
	report("cpu", info->name, ms, ROUNDS, "ms");
	report("kbytes", info->name, &bytes, 1, "KiB");
}

int main(void)
{
	char dir[] = "/tmp/podflame-bench-XXXXXX";
	struct store *s = fill(dir);
	double ms[ROUNDS];
	struct query_file *f = NULL;

	for (size_t i = 0; i < ROUNDS; i++) {
		uint64_t from = thread_cpu_ns();

		query_file_free(f);
		f = read_rows(s);
		ms[i] = (double)(thread_cpu_ns() - from) / 1e6;
	}
	report("cpu", "rows", ms, ROUNDS, "ms");
	for (enum file_format format = 0; format < _FILE_FORMAT_MAX; format++)
		bench_format(f, query_file_format(format));
	query_file_free(f);
	store_close(s);
	if (testdir_remove(dir))
		bench_die(dir, EIO);
	return 0;
}
