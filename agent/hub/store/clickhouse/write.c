/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing: frames, then stacks, then windows, each in one insert that ClickHouse has confirmed
 * before the next one begins. So no window is stored without its stacks. A window that is stored
 * already is left out if the hub finds it; if it does not (another hub writes it now), the table
 * itself keeps only one.
 */
#include "hub/store/clickhouse/clickhouse.h"

#include <stdlib.h>
#include <uthash.h>

#define FRAME_COLUMNS                                                                              \
	"frames (id, kind, inlined, line, address, name, has_name, module, build_id, file, last)"
#define STACK_COLUMNS                                                                              \
	"stacks (id, process, thread, main, wait, label_names, label_values, frames, last)"
#define WINDOW_COLUMNS                                                                             \
	"windows (time, start, profile_id, profile_event_type, app_service, process_id, "          \
	"process_start_ms, pod_cluster, pod_ns, pod_node, pod_group, pod_group_type, pod, "        \
	"pod_uid, container, container_id, image, unverified, tag_names, tag_values, value, n, "   \
	"stacks, `values`, counts, cpus, traces, spans, call_stacks, call_values, call_counts, "   \
	"call_cpus, loss_reasons, loss_counts, loss_times, estimate_ppm, estimate_error, "         \
	"snapshot, stored)"

/* the columns of `windows` that are tags, in their order there */
static const char *const tag_columns[] = {"pod_cluster",    "pod_ns", "pod_node",    "pod_group",
					  "pod_group_type", "pod",    "pod_uid",     "container",
					  "container_id",   "image",  TAG_UNVERIFIED};

#define OLD_NS (2 * 86400 * NSEC_PER_SEC) /* how much older than the retention is too old */

struct id_of {
	const void *key; /* a frame of the batch */
	uint64_t id;
	UT_hash_handle hh;
};
struct writing {
	struct ch_store *s;
	const struct batch *batch; /* whose profiles are being written */
	struct ch_hash *hash;
	uint32_t day;
	uint64_t stored_ns;
	struct id_of *frames;
	uint64_t *frame_lists; /* for each stack of `batch`: a hash of its frames; 0: not made */
	/* of the stack before, whose first frames are often those of the next one, too */
	const struct frame *last_frames[STACK_MAX_FRAMES];
	uint64_t last_ids[STACK_MAX_FRAMES];
	size_t n_last;
	struct buf frame_rows, stack_rows, window_rows;
	size_t n_stacks, n_windows, n_duplicates;
	uint64_t n_samples;
};

static uint32_t day_of(uint64_t ns)
{
	return (uint32_t)(ns / NSEC_PER_SEC / 86400);
}

static bool is_new(struct writing *w, uint64_t id)
{
	if (store_ch_seen(w->s->seen, id, w->day))
		return false;
	store_ch_see(w->s->seen, id, w->day);
	return true;
}

/* ---- frames and stacks ---- */

static void put_frame(struct writing *w, uint64_t id, const struct frame *f)
{
	struct buf *b = &w->frame_rows;

	store_ch_put_u64(b, id);
	store_ch_put_u8(b, (uint8_t)f->kind);
	store_ch_put_u8(b, f->inlined);
	store_ch_put_u32(b, profile_frame_stored_line(f));
	store_ch_put_u64(b, f->address);
	store_ch_put_str(b, f->name);
	store_ch_put_u8(b, f->name != NULL);
	store_ch_put_str(b, f->module);
	store_ch_put_str(b, f->build_id);
	store_ch_put_str(b, f->file);
	store_ch_put_u16(b, (uint16_t)w->day);
}

static uint64_t frame_id(struct writing *w, const struct frame *f)
{
	struct id_of *x;

	HASH_FIND_PTR(w->frames, &f, x);
	if (x)
		return x->id;
	x = xcalloc(1, sizeof(*x));
	x->key = f;
	x->id = store_ch_frame_id(w->hash, f);
	HASH_ADD_PTR(w->frames, key, x);
	if (is_new(w, x->id))
		put_frame(w, x->id, f);
	return x->id;
}

static const struct stack_ref *stack_of(const struct writing *w, uint32_t stack)
{
	static const struct stack_ref none;

	return stack < w->batch->n_stacks ? &w->batch->stacks[stack] : &none;
}

/* The ids of the stack's frames, until the next call. */
static const uint64_t *frame_ids(struct writing *w, const struct stack_ref *x)
{
	for (size_t i = 0; i < x->n; i++) {
		if (i < w->n_last && w->last_frames[i] == x->frames[i])
			continue;
		w->last_frames[i] = x->frames[i];
		w->last_ids[i] = frame_id(w, x->frames[i]);
	}
	w->n_last = MAX(w->n_last, x->n);
	return w->last_ids;
}

static uint64_t frame_list(struct writing *w, uint32_t stack)
{
	const struct stack_ref *x = stack_of(w, stack);
	uint64_t *ret = stack < w->batch->n_stacks ? &w->frame_lists[stack] : NULL;

	if (!ret || !x->n)
		return 0;
	if (!*ret) {
		store_ch_hash_ids(w->hash, frame_ids(w, x), x->n);
		*ret = store_ch_hash_end(w->hash);
	}
	return *ret;
}

static void put_labels(struct buf *b, const struct profile_labels *l)
{
	size_t n = 0;

	for (int i = 0; l && i < _LABEL_MAX; i++)
		n += l->values[i] != NULL;
	buf_put_varint(b, n);
	for (int i = 0; l && i < _LABEL_MAX; i++)
		if (l->values[i])
			store_ch_put_str(b, profile_label_info((enum profile_label)i)->tag);
	buf_put_varint(b, n);
	for (int i = 0; l && i < _LABEL_MAX; i++)
		if (l->values[i])
			store_ch_put_str(b, l->values[i]);
}

static void put_stack(struct writing *w, uint64_t id, const struct profile_sample *x)
{
	const struct stack_ref *frames = stack_of(w, x->stack);
	struct buf *b = &w->stack_rows;

	store_ch_put_u64(b, id);
	store_ch_put_str(b, x->process_comm);
	store_ch_put_str(b, x->thread_comm);
	store_ch_put_u8(b, x->main_thread);
	store_ch_put_u8(b, (uint8_t)x->wait);
	put_labels(b, x->labels);
	buf_put_varint(b, frames->n);
	buf_add(b, frame_ids(w, frames), frames->n * sizeof(uint64_t));
	store_ch_put_u16(b, (uint16_t)w->day);
	w->n_stacks++;
}

static uint64_t stack_id(struct writing *w, const struct profile_sample *x)
{
	const struct stack_head head = {.process_comm = x->process_comm,
					.thread_comm = x->thread_comm,
					.main_thread = x->main_thread,
					.wait = x->wait};
	uint64_t id = store_ch_stack_id(w->hash, frame_list(w, x->stack), &head,
					x->labels ? x->labels->values : NULL);

	if (is_new(w, id))
		put_stack(w, id, x);
	return id;
}

/* ---- windows ---- */

static bool in_range(const struct profile_sample *x)
{
	bool ok = x->value >= 0 && x->value <= CH_MAX_VALUE &&
		  x->n_samples <= (uint64_t)CH_MAX_VALUE && x->cpu >= -1;

	if (!ok)
		counter_add(counter("store_dropped_rows_total", "reason", "value_out_of_range"), 1);
	return ok;
}

static bool is_column(const char *tag)
{
	for (size_t i = 0; i < ARRAY_SIZE(tag_columns); i++)
		if (streq(tag_columns[i], tag))
			return true;
	return false;
}

static void put_tags(struct buf *b, const struct profile *p)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tag_columns); i++)
		store_ch_put_str(b, profile_tag_get(p, tag_columns[i]));
	for (size_t i = 0; i < p->tags.n; i++)
		n += !is_column(p->tags.items[i].key);
	buf_put_varint(b, n);
	for (size_t i = 0; i < p->tags.n; i++)
		if (!is_column(p->tags.items[i].key))
			store_ch_put_str(b, p->tags.items[i].key);
	buf_put_varint(b, n);
	for (size_t i = 0; i < p->tags.n; i++)
		if (!is_column(p->tags.items[i].key))
			store_ch_put_str(b, p->tags.items[i].value);
}

/* The samples of a window, as columns. Equal stacks are added up. */
struct columns {
	size_t n;
	struct buf stacks, values, counts, cpus, traces, spans;
	bool any_cpu;
};

static void columns_done(struct columns *c)
{
	buf_done(&c->stacks);
	buf_done(&c->values);
	buf_done(&c->counts);
	buf_done(&c->cpus);
	buf_done(&c->traces);
	buf_done(&c->spans);
}

static void add_sample(struct columns *c, uint64_t stack, const struct profile_sample *x,
		       const struct profile_link *l)
{
	store_ch_put_u64(&c->stacks, stack);
	store_ch_put_u64(&c->values, (uint64_t)x->value);
	store_ch_put_u64(&c->counts, x->n_samples);
	store_ch_put_u32(&c->cpus, (uint32_t)x->cpu);
	c->any_cpu |= x->cpu >= 0;
	if (l) {
		buf_add(&c->traces, l->trace_id, sizeof(l->trace_id));
		buf_add(&c->spans, l->span_id, sizeof(l->span_id));
	}
	c->n++;
}

static void put_array(struct buf *b, size_t n, const struct buf *items)
{
	buf_put_varint(b, n);
	buf_add(b, items->data ?: "", n ? items->len : 0);
	b->failed |= items->failed;
}

/* The wanted columns; with calls, those of calls come first. */
static void put_columns(struct buf *b, const struct columns *c, bool calls)
{
	if (calls) {
		put_array(b, c->n, &c->traces);
		put_array(b, c->n, &c->spans);
	}
	put_array(b, c->n, &c->stacks);
	put_array(b, c->n, &c->values);
	put_array(b, c->n, &c->counts);
	put_array(b, c->any_cpu ? c->n : 0, &c->cpus);
}

static void put_losses(struct buf *b, const struct profile *p)
{
	buf_put_varint(b, p->n_losses);
	for (size_t i = 0; i < p->n_losses; i++)
		store_ch_put_str(b, p->losses[i].reason ?: "unknown");
	buf_put_varint(b, p->n_losses);
	for (size_t i = 0; i < p->n_losses; i++)
		store_ch_put_u64(b, MIN(p->losses[i].n_samples, (uint64_t)CH_MAX_VALUE));
	buf_put_varint(b, p->n_losses);
	for (size_t i = 0; i < p->n_losses; i++)
		store_ch_put_u64(b, MIN(p->losses[i].time_ns, (uint64_t)CH_MAX_VALUE));
}

int64_t store_ch_last_second(const struct profile *p)
{
	return p->end_ns ? (int64_t)((p->end_ns - 1) / NSEC_PER_SEC) : 0;
}

bool store_ch_is_too_old(const struct ch_store *s, const struct profile *p)
{
	return s->keeps.longest_ns && p->end_ns + s->keeps.longest_ns + OLD_NS < now_wall_ns();
}

static void put_window(struct writing *w, const struct profile *p)
{
	_cleanup_(columns_done) struct columns samples = {0}, calls = {0};
	struct buf *b = &w->window_rows;
	int64_t time_s = store_ch_last_second(p), start_s = (int64_t)(p->start_ns / NSEC_PER_SEC);
	uint64_t value = 0, n = 0;

	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *x = &p->samples[i];
		uint64_t stack;

		if (!in_range(x))
			continue;
		stack = stack_id(w, x);
		add_sample(&samples, stack, x, NULL);
		if (x->link && x->link <= w->batch->n_links)
			add_sample(&calls, stack, x, &w->batch->links[x->link - 1]);
		value = MIN(value + (uint64_t)x->value, (uint64_t)CH_MAX_VALUE);
		n = MIN(n + x->n_samples, (uint64_t)CH_MAX_VALUE);
	}
	store_ch_put_u32(b, (uint32_t)time_s);
	store_ch_put_u32(b, (uint32_t)MIN(start_s, time_s));
	buf_add(b, p->id, sizeof(p->id));
	store_ch_put_str(b, profile_event_info(p->event)->name);
	store_ch_put_str(b, p->app_service);
	store_ch_put_u32(b, p->process_id);
	store_ch_put_u64(b, p->process_start_ns / NSEC_PER_MSEC);
	put_tags(b, p);
	store_ch_put_u64(b, value);
	store_ch_put_u64(b, n);
	put_columns(b, &samples, false);
	put_columns(b, &calls, true);
	put_losses(b, p);
	store_ch_put_u32(b, p->estimate_ppm);
	store_ch_put_u64(b, MIN(p->estimate_error, (uint64_t)CH_MAX_VALUE));
	store_ch_put_u8(b,
			profile_event_info(p->event)->snapshot && (p->n_samples || !p->n_losses));
	store_ch_put_u64(b, w->stored_ns++);
	w->n_windows++;
	w->n_samples += n;
}

/* ---- some batches ---- */

static int insert(struct writing *w, struct field_error *reterr)
{
	int r = 0;

	if (w->frame_rows.len)
		r = store_ch_insert(w->s, FRAME_COLUMNS, &w->frame_rows, reterr);
	if (!r && w->stack_rows.len)
		r = store_ch_insert(w->s, STACK_COLUMNS, &w->stack_rows, reterr);
	if (!r && w->window_rows.len)
		r = store_ch_insert(w->s, WINDOW_COLUMNS, &w->window_rows, reterr);
	return r;
}

static void writing_done(struct writing *w)
{
	struct id_of *x, *next;

	HASH_ITER (hh, w->frames, x, next) {
		HASH_DEL(w->frames, x);
		free(x);
	}
	store_ch_hash_free(w->hash);
	buf_done(&w->frame_rows);
	buf_done(&w->stack_rows);
	buf_done(&w->window_rows);
}

static void count_written(struct writing *w)
{
	struct ch_store *s = w->s;

	pthread_mutex_lock(&s->stats_lock);
	s->stats.n_profiles += w->n_windows;
	s->stats.n_duplicates += w->n_duplicates;
	s->stats.n_samples += w->n_samples;
	s->stats.n_stacks += w->n_stacks;
	pthread_mutex_unlock(&s->stats_lock);
}

static void put_new(struct writing *w, const struct batch *b, struct ch_known **known)
{
	w->batch = b;
	w->frame_lists = xcalloc(b->n_stacks + 1, sizeof(*w->frame_lists));
	for (size_t i = 0; i < b->n_profiles; i++) {
		const struct profile *p = b->profiles[i];

		if (store_ch_is_too_old(w->s, p)) {
			counter_add(counter("store_dropped_rows_total", "reason", "too_old"), 1);
			continue;
		}
		if (store_ch_known_has(known, p->id) || store_ch_known_has(known, p->sent_id)) {
			w->n_duplicates++;
			continue;
		}
		store_ch_known_add(known, p->id);
		put_window(w, p);
	}
	free(TAKE_PTR(w->frame_lists));
}

static int write_new(struct writing *w, const struct batch *const *batches, size_t n,
		     struct field_error *reterr)
{
	_cleanup_(store_ch_known_free) struct ch_known *known = NULL;
	int r = store_ch_known_read(w->s, batches, n, &known, reterr);

	for (size_t i = 0; !r && i < n; i++)
		put_new(w, batches[i], &known);
	return r ? r : insert(w, reterr);
}

static size_t count_profiles(const struct batch *const *batches, size_t n)
{
	size_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += batches[i]->n_profiles;
	return sum;
}

int store_ch_write(struct ch_store *s, const struct batch *const *batches, size_t n,
		   size_t *ret_n_new)
{
	struct writing w = {.s = s,
			    .hash = store_ch_hash_new(s),
			    .day = day_of(now_wall_ns()),
			    .stored_ns = now_wall_ns()};
	struct field_error e = {0};
	int r = count_profiles(batches, n) ? write_new(&w, batches, n, &e) : 0;

	if (r) {
		store_ch_seen_forget(s->seen); /* what of it was written is not known */
		counter_add(counter("store_write_errors_total", "reason", strerrorname_np(-r)), 1);
	} else {
		count_written(&w);
		*ret_n_new = w.n_windows;
	}
	store_ch_tell(s, r, &e);
	writing_done(&w);
	return r;
}
