/* SPDX-License-Identifier: Apache-2.0 */
/* The messages that an agent sends. They decode to the same batch. */
#include "lib/otlp/internal.h"

#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WINDOW_NS 1763700000000000000ULL

static const struct frame main_frames[] = {
	{.kind = FRAME_APP,
	 .name = "main",
	 .module = "/usr/bin/web",
	 .build_id = "ab12",
	 .address = 0x401000,
	 .file = "main.c",
	 .line = 7},
	{.kind = FRAME_APP,
	 .name = "step",
	 .module = "/usr/bin/web",
	 .build_id = "ab12",
	 .address = 0x401000,
	 .file = "step.h",
	 .line = 3,
	 .inlined = true},
	{.kind = FRAME_LIBRARY, .module = "/lib/libc.so.6", .build_id = "cd34", .address = 0x7d0},
	{.kind = FRAME_KERNEL, .name = "do_syscall_64", .module = "[kernel]"},
};

/* One process of a pod, with two samples and one kind of loss. */
static struct batch *small_batch(void)
{
	static const struct tag tags[] = {
		{"pod_cluster", "prod-cluster"},
		{"pod_ns", "app"},
		{"pod", "web-1"},
		{"pod_node", "node-a"},
		{"pod_group", "web"},
		{"pod_group_type", "Deployment"},
		{"container", "main"},
		{"container_id", "0123456789abcdef"},
		{"image", "web:1"},
		{"container_pid", "12"},
		{"k8s.label.app", "web"},
		{"zone", "b"},
	};
	struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	struct profile_sample *s;
	uint32_t stack;

	for (unsigned i = 0; i < sizeof(p->id); i++)
		p->id[i] = (uint8_t)(i + 1);
	p->event = EVENT_ON_CPU;
	p->start_ns = WINDOW_NS;
	p->end_ns = WINDOW_NS + 10 * NSEC_PER_SEC;
	p->period_ns = 10101000;
	p->app_service = profile_batch_str(b, "web");
	p->process_id = 4242;
	p->process_start_ns = WINDOW_NS - 5000000001ULL;
	for (size_t i = 0; i < ARRAY_SIZE(tags); i++)
		profile_tag(b, p, tags[i].key, tags[i].value);
	assert_int_equal(profile_batch_stack(b, main_frames, ARRAY_SIZE(main_frames), &stack), 0);
	s = profile_add(b, p);
	*s = (struct profile_sample){.stack = stack,
				     .value = 20202,
				     .n_samples = 2,
				     .thread_comm = profile_batch_str(b, "web"),
				     .main_thread = true,
				     .cpu = 3};
	s = profile_add(b, p);
	*s = (struct profile_sample){.stack = stack,
				     .value = 5,
				     .n_samples = 9,
				     .thread_comm = profile_batch_str(b, "worker"),
				     .cpu = -1};
	profile_lose(b, p, "ring_full", 17, 0);
	profile_lose(b, p, "agent_down", 0, 3 * NSEC_PER_SEC);
	return b;
}

/* ---- comparing ---- */

static void text_equal(const char *a, const char *b)
{
	assert_int_equal(a && *a, b && *b); /* on the wire, NULL and "" are the same */
	if (a && *a)
		assert_string_equal(a, b);
}

static void stacks_equal(const struct batch *ab, uint32_t a, const struct batch *bb, uint32_t b)
{
	bool none = a == STACK_NONE || !ab->stacks[a].n;

	assert_int_equal(none, b == STACK_NONE);
	if (none)
		return;
	assert_int_equal(ab->stacks[a].n, bb->stacks[b].n);
	for (size_t i = 0; i < ab->stacks[a].n; i++) {
		const struct frame *f = ab->stacks[a].frames[i], *g = bb->stacks[b].frames[i];

		assert_int_equal(f->kind, g->kind);
		assert_int_equal(f->inlined, g->inlined);
		assert_int_equal(f->line, g->line);
		assert_true(f->address == g->address);
		assert_true(f->start == g->start);
		text_equal(f->name, g->name);
		text_equal(f->module, g->module);
		text_equal(f->build_id, g->build_id);
		text_equal(f->file, g->file);
	}
}

static void labels_equal(const struct profile_labels *a, const struct profile_labels *b)
{
	assert_int_equal(!a, !b);
	for (enum profile_label l = 0; a && l < _LABEL_MAX; l++)
		text_equal(a->values[l], b->values[l]);
}

static void samples_equal(const struct batch *ab, const struct profile *a, const struct batch *bb,
			  const struct profile *b)
{
	assert_int_equal(a->n_samples, b->n_samples);
	for (size_t i = 0; i < a->n_samples; i++) {
		const struct profile_sample *s = &a->samples[i], *t = &b->samples[i];

		assert_true(s->value == t->value);
		assert_true(s->n_samples == t->n_samples);
		assert_int_equal(s->main_thread, t->main_thread);
		assert_int_equal(s->cpu, t->cpu);
		assert_int_equal(s->wait, t->wait);
		text_equal(s->process_comm, t->process_comm);
		text_equal(s->thread_comm, t->thread_comm);
		labels_equal(s->labels, t->labels);
		stacks_equal(ab, s->stack, bb, t->stack);
		assert_int_equal(!s->link, !t->link);
		if (s->link)
			assert_memory_equal(&ab->links[s->link - 1], &bb->links[t->link - 1],
					    sizeof(struct profile_link));
	}
}

static void profiles_equal(const struct batch *ab, const struct profile *a, const struct batch *bb,
			   const struct profile *b)
{
	assert_int_equal(a->event, b->event);
	assert_true(a->start_ns == b->start_ns && a->end_ns == b->end_ns);
	assert_true(a->period_ns == b->period_ns);
	assert_int_equal(a->estimate_ppm, b->estimate_ppm);
	assert_true(a->estimate_error == b->estimate_error);
	assert_string_equal(a->app_service, b->app_service);
	assert_int_equal(a->process_id, b->process_id);
	assert_true(a->process_start_ns == b->process_start_ns);
	assert_int_equal(a->tags.n, b->tags.n);
	for (size_t i = 0; i < a->tags.n; i++) {
		assert_string_equal(a->tags.items[i].key, b->tags.items[i].key);
		assert_string_equal(a->tags.items[i].value, b->tags.items[i].value);
	}
	samples_equal(ab, a, bb, b);
	assert_int_equal(a->n_losses, b->n_losses);
	for (size_t i = 0; i < a->n_losses; i++) {
		assert_string_equal(a->losses[i].reason, b->losses[i].reason);
		assert_true(a->losses[i].n_samples == b->losses[i].n_samples);
		assert_true(a->losses[i].time_ns == b->losses[i].time_ns);
	}
}

/* Decoded profiles are in another order, grouped by process. So they are compared by id. */
static void batches_equal(const struct batch *a, const struct batch *b)
{
	assert_int_equal(a->n_profiles, b->n_profiles);
	for (size_t i = 0; i < a->n_profiles; i++) {
		size_t j = 0;

		while (j < b->n_profiles && memcmp(a->profiles[i]->id, b->profiles[j]->id, 16) != 0)
			j++;
		assert_true(j < b->n_profiles);
		profiles_equal(a, a->profiles[i], b, b->profiles[j]);
	}
}

static struct batch *through_the_wire(const struct batch *b)
{
	_cleanup_buf_ struct buf bytes = {0};
	struct field_error err = {0};
	struct batch *back = NULL;
	int r;

	assert_int_equal(otlp_encode(b, &bytes), 0);
	r = otlp_decode(bytes.data, bytes.len, &back, &err);
	if (r < 0)
		fail_msg("%s: %s", err.path, err.reason);
	return back;
}

/* ---- random batches ---- */

static const char *pick(const char *const *words, size_t n)
{
	return words[random_below(n)];
}

static struct frame random_frame(void)
{
	static const char *const names[] = {NULL, "f", "g(int)", "std::vector<int>::at", "é;x"};
	static const char *const modules[] = {NULL, "/bin/a", "/lib/b.so.1", "[kernel]"};
	static const char *const ids[] = {NULL, "00ff", "1234567890abcdef"};

	struct frame f = {.kind = (enum frame_kind)random_below(_FRAME_KIND_MAX),
			  .inlined = random_below(2),
			  .address = random_below(3) ? random_below(4) : UINT64_MAX,
			  .name = pick(names, ARRAY_SIZE(names)),
			  .module = pick(modules, ARRAY_SIZE(modules)),
			  .build_id = pick(ids, ARRAY_SIZE(ids)),
			  .file = pick(names, ARRAY_SIZE(names))};

	if (f.name)
		f.line = (uint32_t)random_below(3);
	else
		f.start = f.address - random_below(MIN(f.address, UINT64_C(3)) + 1);
	return f;
}

static const struct profile_labels *random_labels(struct batch *b)
{
	static const char *const values[] = {NULL, "0", "7", "default"};
	struct profile_labels labels;

	for (enum profile_label l = 0; l < _LABEL_MAX; l++)
		labels.values[l] = profile_batch_str(b, pick(values, ARRAY_SIZE(values)));
	return profile_batch_labels(b, &labels);
}

static void random_profile(struct batch *b)
{
	static const char *const comms[] = {NULL, "a", "worker-1", "\xe4\xb8\xad"};
	static const char *const keys[] = {
		"pod_ns",	 "pod",		  "pod_group", "pod_group_type",
		"container_pid", "k8s.label.x/y", "own",       "pod_uid"};
	static const char *const values[] = {"1", "007", "Deployment", "Job", "x", ""};
	struct profile *p = profile_batch_profile(b);

	random_bytes(p->id, sizeof(p->id));
	p->start_ns = 1 + random_below(UINT64_C(1) << 61);
	p->end_ns = p->start_ns + 1 + random_below(60 * NSEC_PER_SEC);
	p->event = (enum event)random_below(_EVENT_MAX);
	p->period_ns = p->event == EVENT_ON_CPU && random_below(2) ? 10101000 : 0;
	p->estimate_ppm = (uint32_t)random_below(2) * (uint32_t)random_below(1000001);
	p->estimate_error = random_below(2) * random_below(UINT64_C(1) << 62);
	p->app_service = profile_batch_str(b, pick(comms + 1, 3));
	p->process_id = (uint32_t)random_below(UINT32_MAX);
	p->process_start_ns = random_below(2) * WINDOW_NS;
	for (unsigned i = 0; i < random_below(9); i++)
		profile_tag(b, p, pick(keys, ARRAY_SIZE(keys)), pick(values, ARRAY_SIZE(values)));
	for (unsigned i = 0; i < random_below(20); i++) {
		struct frame frames[40];
		size_t n = random_below(ARRAY_SIZE(frames));
		struct profile_sample *s = profile_add(b, p);

		for (size_t j = 0; j < n; j++)
			frames[j] = random_frame();
		assert_int_equal(profile_batch_stack(b, frames, n, &s->stack), 0);
		if (!random_below(8))
			s->stack = STACK_NONE;
		s->value = (int64_t)random_below(UINT64_C(1) << random_below(54));
		s->n_samples = random_below(UINT64_C(1) << random_below(54));
		s->cpu = (int32_t)random_below(3) - 1;
		s->main_thread = random_below(2);
		if (p->event == EVENT_OFF_CPU)
			s->wait = (enum wait)random_below(_WAIT_MAX);
		s->thread_comm = profile_batch_str(b, pick(comms, 4));
		s->process_comm = profile_batch_str(b, pick(comms, 4));
		if (random_below(2)) {
			struct profile_link l = {{1, (uint8_t)random_below(3)}, {2}};

			assert_int_equal(profile_batch_link(b, &l, &s->link), 0);
		}
		if (random_below(2))
			s->labels = random_labels(b);
	}
	if (random_below(2))
		profile_lose(b, p, "ring_full", random_below(3), random_below(3));
}

/* ---- tests ---- */

static void test_round_trip(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *a = small_batch();
	_cleanup_(profile_batch_freep) struct batch *b = through_the_wire(a);

	batches_equal(a, b);
}

static void test_round_trip_random(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 300; round++) {
		_cleanup_(profile_batch_freep) struct batch *a = profile_batch_new();
		_cleanup_(profile_batch_freep) struct batch *b = NULL;

		for (unsigned i = 0; i < random_below(6); i++)
			random_profile(a);
		b = through_the_wire(a);
		batches_equal(a, b);
	}
}

/*
 * A snapshot of a process that uses no memory is sent, too. Otherwise the previous snapshot would
 * stay the newest one.
 */
static void test_an_empty_snapshot_arrives(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *a = profile_batch_new(), *b = NULL;
	struct profile *p = profile_batch_profile(a);

	p->id[0] = 1;
	p->event = EVENT_MEM_INUSE;
	p->start_ns = WINDOW_NS;
	p->end_ns = WINDOW_NS + NSEC_PER_SEC;
	p->app_service = profile_batch_str(a, "web");
	p->process_id = 7;
	b = through_the_wire(a);
	assert_int_equal(b->n_profiles, 1);
	assert_int_equal(b->profiles[0]->event, EVENT_MEM_INUSE);
	assert_int_equal(b->profiles[0]->process_id, 7);
	assert_int_equal(b->profiles[0]->n_samples, 0);
}

static const char *resource_text(const Otlp__ProfilesDictionary *d, const Otlp__Resource *r,
				 const char *key)
{
	static char number[24];

	for (size_t i = 0; i < r->n_attributes; i++) {
		const Otlp__AnyValue *v = r->attributes[i]->value;

		/* with a key of its own, too, Collector 0.150 would take it as "" */
		assert_string_equal(r->attributes[i]->key, "");
		if (!streq(d->string_table[r->attributes[i]->key_strindex], key))
			continue;
		if (v->value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE)
			return v->string_value;
		snprintf(number, sizeof(number), "int %lld", (long long)v->int_value);
		return number;
	}
	return NULL;
}

/*
 * Checks fields that other OTLP consumers read: names of the semantic conventions, leaf first, row
 * 0 empty.
 */
static void test_says_what_collectors_read(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = small_batch();
	_cleanup_buf_ struct buf bytes = {0};
	Otlp__ExportProfilesServiceRequest *req;
	const Otlp__ProfilesDictionary *d;
	const Otlp__Resource *res;
	const Otlp__Profile *p;
	const Otlp__Location *leaf, *root;

	assert_int_equal(otlp_encode(b, &bytes), 0);
	req = otlp__export_profiles_service_request__unpack(NULL, bytes.len, (uint8_t *)bytes.data);
	assert_non_null(req);
	d = req->dictionary;
	assert_int_equal(req->n_resource_profiles, 1);
	res = req->resource_profiles[0]->resource;
	assert_string_equal(resource_text(d, res, "service.name"), "web");
	assert_string_equal(resource_text(d, res, "process.pid"), "int 4242");
	assert_string_equal(resource_text(d, res, "process.vpid"), "int 12");
	assert_string_equal(resource_text(d, res, "process.creation.time"),
			    "2025-11-21T04:39:54.999999999Z");
	assert_string_equal(resource_text(d, res, "k8s.cluster.name"), "prod-cluster");
	assert_string_equal(resource_text(d, res, "k8s.namespace.name"), "app");
	assert_string_equal(resource_text(d, res, "k8s.deployment.name"), "web");
	assert_string_equal(resource_text(d, res, "k8s.pod.label.app"), "web");
	assert_string_equal(resource_text(d, res, "podflame.tag.zone"), "b");
	p = req->resource_profiles[0]->scope_profiles[0]->profiles[0];
	assert_string_equal(d->string_table[p->sample_type->unit_strindex], "microseconds");
	assert_string_equal(d->string_table[p->period_type->unit_strindex], "nanoseconds");
	assert_int_equal(p->samples[0]->stack_index, 1);
	assert_string_equal(d->string_table[0], "");
	assert_int_equal(d->stack_table[0]->n_location_indices, 0);
	assert_int_equal(d->stack_table[1]->n_location_indices, 3);
	leaf = d->location_table[d->stack_table[1]->location_indices[0]];
	root = d->location_table[d->stack_table[1]->location_indices[2]];
	assert_string_equal(
		d->string_table[d->function_table[leaf->lines[0]->function_index]->name_strindex],
		"do_syscall_64");
	assert_int_equal(root->n_lines, 2); /* the inlined function first, then its caller */
	assert_string_equal(
		d->string_table[d->function_table[root->lines[0]->function_index]->name_strindex],
		"step");
	assert_string_equal(
		d->string_table[d->mapping_table[root->mapping_index]->filename_strindex],
		"/usr/bin/web");
	otlp__export_profiles_service_request__free_unpacked(req, NULL);
}

static const char *location_text(const Otlp__ProfilesDictionary *d, const Otlp__Location *l,
				 const char *key)
{
	for (size_t i = 0; i < l->n_attribute_indices; i++) {
		const Otlp__KeyValueAndUnit *a = d->attribute_table[l->attribute_indices[i]];

		if (streq(d->string_table[a->key_strindex], key))
			return a->value->string_value;
	}
	return NULL;
}

/*
 * A hub that does not know a frame type treats the frame as native code, unless the frame also has
 * podflame's attribute for the kind.
 */
static void test_frames_of_cuda_have_a_kind_for_older_hubs(void **state)
{
	static const struct frame frame = {.kind = FRAME_CUDA, .name = "cuMemAlloc_v2"};
	_cleanup_(profile_batch_freep) struct batch *b = small_batch();
	_cleanup_buf_ struct buf bytes = {0};
	Otlp__ExportProfilesServiceRequest *req;
	const Otlp__ProfilesDictionary *d;
	const Otlp__Location *l;

	(void)state;
	assert_int_equal(profile_batch_stack(b, &frame, 1, &b->profiles[0]->samples[0].stack), 0);
	assert_int_equal(otlp_encode(b, &bytes), 0);
	req = otlp__export_profiles_service_request__unpack(NULL, bytes.len, (uint8_t *)bytes.data);
	assert_non_null(req);
	d = req->dictionary;
	l = d->location_table[d->stack_table[1]->location_indices[0]];
	assert_string_equal(location_text(d, l, "profile.frame.type"), "cuda");
	assert_string_equal(location_text(d, l, "podflame.frame.kind"), "cuda");
	otlp__export_profiles_service_request__free_unpacked(req, NULL);
}

/* Types and units of all events. Only on-CPU profiles have a period. */
static void test_types_of_events(void **state)
{
	(void)state;
	static const struct {
		const char *type, *unit;
	} want[] = {
		[EVENT_ON_CPU] = {"on_cpu", "microseconds"},
		[EVENT_OFF_CPU] = {"off_cpu", "microseconds"},
		[EVENT_MEM_ALLOC] = {"mem_alloc", "bytes"},
		[EVENT_MEM_INUSE] = {"mem_inuse", "bytes"},
		[EVENT_HBM_ALLOC] = {"hbm_alloc", "bytes"},
		[EVENT_HBM_INUSE] = {"hbm_inuse", "bytes"},
		[EVENT_ON_GPU] = {"on_gpu", "microseconds"},
		[EVENT_RDMA] = {"rdma", "bytes"},
		[EVENT_RDMA_LATENCY] = {"rdma_latency", "microseconds"},
	};

	assert_int_equal(ARRAY_SIZE(want), _EVENT_MAX);

	for (enum event ev = 0; ev < _EVENT_MAX; ev++) {
		_cleanup_(profile_batch_freep) struct batch *b = small_batch();
		_cleanup_buf_ struct buf bytes = {0};
		Otlp__ExportProfilesServiceRequest *req;
		const Otlp__Profile *p;
		char **texts;

		b->profiles[0]->event = ev;
		assert_int_equal(otlp_encode(b, &bytes), 0);
		req = otlp__export_profiles_service_request__unpack(NULL, bytes.len,
								    (uint8_t *)bytes.data);
		assert_non_null(req);
		texts = req->dictionary->string_table;
		p = req->resource_profiles[0]->scope_profiles[0]->profiles[0];
		assert_string_equal(texts[p->sample_type->type_strindex], want[ev].type);
		assert_string_equal(texts[p->sample_type->unit_strindex], want[ev].unit);
		assert_int_equal(p->period_type != NULL, ev == EVENT_ON_CPU);
		otlp__export_profiles_service_request__free_unpacked(req, NULL);
	}
}

/* A consumer of OTLP finds the ids through the sample's link_index. Row 0 is no link. */
static void test_links_are_rows_of_the_dictionary(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = small_batch();
	_cleanup_buf_ struct buf bytes = {0};
	const struct profile_link l = {"0123456789abcde", "1234567"};
	Otlp__ExportProfilesServiceRequest *req;
	const Otlp__ProfilesDictionary *d;
	const Otlp__Profile *p;

	assert_int_equal(profile_batch_link(b, &l, &b->profiles[0]->samples[1].link), 0);
	assert_int_equal(otlp_encode(b, &bytes), 0);
	req = otlp__export_profiles_service_request__unpack(NULL, bytes.len, (uint8_t *)bytes.data);
	assert_non_null(req);
	d = req->dictionary;
	p = req->resource_profiles[0]->scope_profiles[0]->profiles[0];
	assert_int_equal(d->n_link_table, 2);
	assert_int_equal(d->link_table[0]->trace_id.len, 0);
	assert_int_equal(p->samples[0]->link_index, 0);
	assert_int_equal(p->samples[1]->link_index, 1);
	assert_int_equal(d->link_table[1]->trace_id.len, 16);
	assert_memory_equal(d->link_table[1]->trace_id.data, l.trace_id, 16);
	assert_int_equal(d->link_table[1]->span_id.len, 8);
	assert_memory_equal(d->link_table[1]->span_id.data, l.span_id, 8);
	otlp__export_profiles_service_request__free_unpacked(req, NULL);
}

/*
 * pdata/pprofile v0.150.0 has read these bytes (see docs/otlp.md). If the hash differs, the bytes
 * or the version of the messages have changed.
 */
static void test_known_answer(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = small_batch();
	_cleanup_buf_ struct buf bytes = {0};
	uint8_t digest[SHA256_DIGEST_LENGTH];
	char hex[2 * sizeof(digest) + 1];
	const char *dump = getenv("OTLP_DUMP");

	assert_int_equal(otlp_encode(b, &bytes), 0);
	if (dump)
		assert_int_equal(file_write_atomic(dump, bytes.data, bytes.len, 0644), 0);
	assert_int_equal(bytes.len, 1243);
	SHA256((const uint8_t *)bytes.data, bytes.len, digest);
	hex_encode(digest, sizeof(digest), hex);
	assert_string_equal(hex,
			    "9e31e9f0ec0bf9c47a0299c216d413817263c92aad7c949adede41f018bde45a");
}

static void test_bad_text_is_replaced(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *a = small_batch(), *b = NULL;

	a->profiles[0]->app_service = profile_batch_str(a, "w\xff"
							   "b\xc3");
	a->profiles[0]->samples[1].thread_comm = profile_batch_str(a, "\xed\xa0\x80!");
	b = through_the_wire(a);
	assert_string_equal(b->profiles[0]->app_service, "w\xef\xbf\xbd"
							 "b\xef\xbf\xbd");
	assert_string_equal(b->profiles[0]->samples[1].thread_comm,
			    "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!");
}

static void test_too_large_for_the_buffer(void **state)
{
	(void)state;
	_cleanup_(profile_batch_freep) struct batch *b = small_batch();
	_cleanup_buf_ struct buf bytes;

	buf_init(&bytes, 100);
	assert_int_equal(otlp_encode(b, &bytes), -E2BIG);
	assert_int_equal(bytes.len, 0);
}

/* Also in small pieces, a file has what a request has, and the notes. */
static void test_a_file_has_what_a_request_has(void **state)
{
	static const char *const notes[] = {"lost: 3", "throttled"};
	const struct profile_file file = {.event = EVENT_ON_CPU, .notes = notes, .n_notes = 2};
	_cleanup_(profile_batch_freep) struct batch *a = profile_batch_new(), *b = NULL;
	_cleanup_buf_ struct buf pieces = {0}, whole = {0};
	struct profile_writer *w;
	struct field_error e;
	int r;

	(void)state;
	for (int i = 0; i < 5; i++)
		random_profile(a);
	w = otlp_file_writer(a, &file, NULL);
	do
		r = profile_writer_fill(w, pieces.len + 1, &pieces);
	while (r > 0);
	assert_int_equal(r, 0);
	profile_writer_free(w);
	assert_int_equal(profile_write(otlp_file_writer, a, &file, &whole), 0);
	assert_int_equal(pieces.len, whole.len);
	assert_memory_equal(pieces.data, whole.data, whole.len);
	assert_non_null(memmem(whole.data, whole.len, "lost: 3\nthrottled", 17));
	assert_int_equal(otlp_decode(whole.data, whole.len, &b, &e), 0);
	batches_equal(a, b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_round_trip_random),
		cmocka_unit_test(test_an_empty_snapshot_arrives),
		cmocka_unit_test(test_frames_of_cuda_have_a_kind_for_older_hubs),
		cmocka_unit_test(test_types_of_events),
		cmocka_unit_test(test_says_what_collectors_read),
		cmocka_unit_test(test_links_are_rows_of_the_dictionary),
		cmocka_unit_test(test_known_answer),
		cmocka_unit_test(test_bad_text_is_replaced),
		cmocka_unit_test(test_too_large_for_the_buffer),
		cmocka_unit_test(test_a_file_has_what_a_request_has),
	};

	return cmocka_run_group_tests_name("otlp/encode", tests, NULL, NULL);
}
