/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges record's samples into profiles during the recording. At the end, writes them as a picture,
 * or as a file like those of the hub: the name's ending says which.
 */
#include "cli/record.h"

#include "cli/svg.h"

#include <stdlib.h>
#include <uthash.h>

#define MAX_OUTPUT_BYTES (512u << 20) /* bytes of the file before compression */
#define GZIP_LEVEL	 6

/* ---- merging ---- */

struct row_key {
	struct process_id process;
	const char *app_service, *thread_comm; /* interned, so pointers are compared */
	uint32_t stack, main_thread;
	uint32_t wait, pad; /* pad is 0, because all bytes of a key are compared */
	const struct profile_labels *labels;
};
struct record_row {
	struct row_key key;
	struct profile *profile;
	size_t sample; /* index in profile->samples; SIZE_MAX: the row is of the profile itself */
	UT_hash_handle hh;
};

static struct record_row *find_row(struct recording *r, const struct row_key *key)
{
	struct record_row *row;

	HASH_FIND(hh, r->rows, key, sizeof(*key), row);
	return row;
}

static struct record_row *add_row(struct recording *r, const struct row_key *key,
				  struct profile *profile, size_t sample)
{
	struct record_row *row = xcalloc(1, sizeof(*row));

	row->key = *key;
	row->profile = profile;
	row->sample = sample;
	HASH_ADD(hh, r->rows, key, sizeof(row->key), row);
	return row;
}

/* A process has one profile for each of its names, because exec changes the name. */
static struct profile *profile_of(struct recording *r, const struct raw_sample *s,
				  const char *app_service)
{
	struct row_key key = {
		.process = process_id_of(s),
		.app_service = app_service,
		.stack = STACK_NONE,
	};
	struct record_row *row = find_row(r, &key);
	struct profile *p;

	if (row)
		return row->profile;
	p = profile_batch_profile(r->batch);
	if (!p)
		return NULL;
	p->event = s->event;
	p->start_ns = r->start_ns;
	p->period_ns = s->event == EVENT_ON_CPU ? NSEC_PER_SEC / r->options->hz : 0;
	p->app_service = app_service;
	p->process_id = s->tgid;
	add_row(r, &key, p, SIZE_MAX);
	return p;
}

static bool is_of(const struct record_row *row, const struct raw_sample *s)
{
	return process_id_equal(row->key.process, process_id_of(s));
}

/*
 * If the sample begins a newer snapshot of the process's memory in use, removes the values of the
 * older one.
 */
static void begin_snapshot(struct recording *r, const struct raw_sample *s)
{
	struct record_row *row, *next;

	if (!cli_record_probed_newer(r, s))
		return;
	HASH_ITER (hh, r->rows, row, next) {
		if (!is_of(row, s))
			continue;
		row->profile->n_samples = 0;
		if (row->sample == SIZE_MAX)
			continue;
		HASH_DEL(r->rows, row);
		free(row);
	}
}

/*
 * A task may give itself a name of any bytes. But pprof needs UTF-8, and a newline would end a
 * folded line. So this function makes clean text of it.
 */
static const char *comm_of(struct recording *r, const char *comm)
{
	_cleanup_free_ char *text = elf_text_clean(comm);

	return profile_batch_str(r->batch, text);
}

int cli_record_add(struct recording *r, const struct raw_sample *s, const struct raw_names *names,
		   uint32_t stack)
{
	const char *leader = comm_of(r, names ? names->leader_comm : "[unknown]");
	const char *thread = comm_of(r, names ? names->thread_comm : "[unknown]");
	struct row_key key = {
		.process = process_id_of(s),
		.app_service = leader,
		.thread_comm = thread,
		.stack = stack,
		.main_thread = s->tid == s->tgid,
		.wait = profile_wait_of(s->wait, r->batch, stack),
		.labels = sample_labels(r->batch, s),
	};
	struct record_row *row;
	struct profile *p;
	struct profile_sample *to;

	if (!leader || !thread)
		return -E2BIG;
	if (profile_event_info(s->event)->snapshot)
		begin_snapshot(r, s);
	if (!s->n && !s->value)
		return 0;
	row = find_row(r, &key);
	if (!row) {
		p = profile_of(r, s, leader);
		to = p ? profile_add(r->batch, p) : NULL;
		if (!to)
			return -E2BIG;
		to->stack = stack;
		to->thread_comm = thread;
		to->main_thread = key.main_thread;
		to->wait = key.wait;
		to->labels = key.labels;
		to->cpu = -1;
		row = add_row(r, &key, p, p->n_samples - 1);
	}
	to = &row->profile->samples[row->sample];
	/* a process may claim any size */
	to->value += (int64_t)MIN(s->value, (uint64_t)(PROFILE_MAX_VALUE - to->value));
	to->n_samples += s->n;
	return 0;
}

void cli_record_rows_free(struct recording *r)
{
	struct record_row *row, *next;

	HASH_ITER (hh, r->rows, row, next) {
		HASH_DEL(r->rows, row);
		free(row);
	}
}

/* ---- the file ---- */

enum record_form cli_record_form(const char *name, const struct file_format_info **ret_file)
{
	if (str_has_suffix(name, ".folded"))
		return RECORD_FOLDED;
	if (str_has_suffix(name, ".svg"))
		return RECORD_SVG;
	for (enum file_format f = 0; f < _FILE_FORMAT_MAX; f++) {
		const struct file_format_info *info = query_file_format(f);
		_cleanup_free_ char *ending = xasprintf(".%s", info->ending);

		if (!str_has_suffix(name, ending))
			continue;
		if (ret_file)
			*ret_file = info;
		return f == FILE_FOLDED ? RECORD_FOLDED : RECORD_FILE;
	}
	return RECORD_UNKNOWN;
}

/* What was lost, as a list of which the caller frees the texts and the list. */
static const char **notes_of(const struct recording *r, size_t *ret_n)
{
	const char **notes = xcalloc(r->lost.n + 1, sizeof(*notes));
	size_t n = 0;

	for (size_t i = 0; i < r->lost.n; i++)
		notes[n++] = xasprintf("lost: %" PRIu64 " %s", r->lost.items[i].n,
				       r->lost.items[i].reason);
	if (r->n_too_many)
		notes[n++] =
			xasprintf("lost: %" PRIu64 " too many different stacks", r->n_too_many);
	*ret_n = n;
	return notes;
}

static int write_file(struct recording *r, const struct file_format_info *info, struct buf *out)
{
	struct profile_file file = {.event = r->options->event};
	const char **notes = notes_of(r, &file.n_notes);
	_cleanup_buf_ struct buf plain = {0};
	int e;

	file.notes = notes;

	buf_init(&plain, MAX_OUTPUT_BYTES);
	for (size_t i = 0; i < r->batch->n_profiles; i++)
		r->batch->profiles[i]->end_ns = r->end_ns;
	e = profile_write(info->writer, r->batch, &file, info->flags & FILE_IS_GZIP ? &plain : out);
	if (!e && info->flags & FILE_IS_GZIP)
		e = buf_add_gzip(out, plain.data, plain.len, GZIP_LEVEL);
	for (size_t i = 0; i < file.n_notes; i++)
		free((char *)notes[i]);
	free(notes);
	return e;
}

static int write_svg(const struct recording *r, struct buf *out)
{
	const struct event_info *event = profile_event_info(r->options->event);
	_cleanup_buf_ struct buf folded = {0};
	_cleanup_free_ char *title = NULL;
	char from[32], to[32], none[] = "";
	int e;

	buf_init(&folded, MAX_OUTPUT_BYTES);
	e = profile_write(profile_folded_writer, r->batch, &(struct profile_file){0}, &folded);
	if (e)
		return e;
	time_format(r->start_ns, from);
	time_format(r->end_ns, to);
	title = xasprintf("%s, from %s to %s", event->name, from, to);
	cli_svg_write_folded(folded.data ?: none, title, event->unit, out);
	return 0;
}

int cli_record_write(struct recording *r)
{
	const struct file_format_info *info = query_file_format(FILE_PPROF);
	_cleanup_buf_ struct buf out = {0};
	int e;

	buf_init(&out, MAX_OUTPUT_BYTES);
	switch (cli_record_form(r->options->output, &info)) {
	case RECORD_FOLDED:
		e = profile_write(profile_folded_writer, r->batch,
				  &(struct profile_file){.ticks = true}, &out);
		break;
	case RECORD_SVG:
		e = write_svg(r, &out);
		break;
	default:
		e = write_file(r, info, &out);
	}
	if (e == -E2BIG || (!e && out.failed))
		e = -EFBIG;
	return e ? e
		 : file_write_atomic(r->options->output, out.data ? out.data : "", out.len, 0644);
}

/*
 * Prints how many names stayed mangled because the child process that demangles names failed. Names
 * that stay mangled for another reason do not count.
 */
void cli_record_print_mangled(void)
{
	static const char *const reasons[][2] = {
		{"no_child", "could not be started"},
		{"timeout", "did not answer in time"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		uint64_t n = counter_get(
			counter("podflame_names_mangled_total", "reason", reasons[i][0]));

		if (n)
			fprintf(stderr,
				"podflame record: %" PRIu64
				" names stayed mangled: the child that demangles names %s\n",
				n, reasons[i][1]);
	}
}
