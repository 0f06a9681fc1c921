/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: texts as in DeepFlow's documents, interning, ids, and pprof, which the tool pprof reads.
 */
#include "lib/profile/profile.h"

#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

static void check(const struct stack_head *h, const struct frame *f, size_t n, const char *want)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 0);
	profile_stack_render(h, f, n, &b);
	assert_string_equal(b.data ? b.data : "", want);
}

static void test_forms_of_the_documents(void **state)
{
	const struct stack_head worker = {.thread_comm = "worker"};
	const struct stack_head main_thread = {.thread_comm = "api", .main_thread = true};
	const struct frame f[] = {
		{.kind = FRAME_APP, .address = 0x3932388},
		{.kind = FRAME_APP, .name = "main_loop"},
		{.kind = FRAME_LIBRARY, .name = "write"},
		{.kind = FRAME_KERNEL, .name = "do_syscall_64"},
	};
	const struct frame unresolved[] = {
		{.kind = FRAME_APP, .module = "/usr/local/bin/kube-apiserver"},
		{.kind = FRAME_LIBRARY, .module = "/lib/ld-musl-x86_64.so.1"},
		{.kind = FRAME_APP, .address = 0x3932388},
		{.kind = FRAME_KERNEL, .module = "[kernel]", .address = 0xffffffff81000000},
	};

	(void)state;
	check(&worker, f, 4,
	      "[t] worker;[unknown start_thread?];main_loop;[l] write;[k] do_syscall_64");
	check(&main_thread, f + 1, 1, "[p] api;main_loop");
	check(&main_thread, unresolved, 4,
	      "[p] api;[/usr/local/bin/kube-apiserver];[/lib/ld-musl-x86_64.so.1];"
	      "[unknown] 0x0000000003932388;[k] [unknown] 0xffffffff81000000");
}

static void assert_start_name(const struct frame *f, const char *want)
{
	_cleanup_buf_ struct buf b = {0};

	assert_int_equal(profile_frame_start_name(f, &b), want != NULL);
	assert_string_equal(b.data ? b.data : "", want ?: "");
}

static void test_functions_without_a_name_are_told_by_their_start(void **state)
{
	struct frame f = {.kind = FRAME_LIBRARY,
			  .module = "/usr/lib/p7zip/7z.so",
			  .address = 0x1a2c4,
			  .start = 0x1a2b0};

	(void)state;
	assert_start_name(&f, "7z.so+0x1a2b0");
	check(&(struct stack_head){0}, &f, 1, "[/usr/lib/p7zip/7z.so]"); /* as in DeepFlow */
	f.module = "[vdso]";
	assert_start_name(&f, "[vdso]+0x1a2b0");
	f.module = NULL;
	assert_start_name(&f, NULL);
	f = (struct frame){.module = "/a", .address = 0x1a2c4};
	assert_start_name(&f, NULL);
	f = (struct frame){.module = "/a", .address = 4, .start = 1, .name = "main"};
	assert_start_name(&f, NULL);
}

/* A frame is stored with a line or a start, and is the same when it is read. */
static void test_lines_and_starts_are_stored_as_one_number(void **state)
{
	static const struct {
		struct frame frame;
		uint32_t stored;
	} known[] = {
		{{.name = "main", .address = 0x1000, .line = 7}, 7},
		{{.name = "main", .address = 0x1000}, 0},
		{{.address = 0x1010, .start = 0x1000}, 0x11},
		{{.address = 0x1000, .start = 0x1000}, 1},
		{{.address = 0x1010}, 0},
		{{.address = UINT32_MAX, .start = 1}, UINT32_MAX},
		{{.address = 0, .line = 7}, 7}, /* of another profiler: kept, as it has no start */
	};
	const struct frame far = {.address = 1ull << 40, .start = 1},
			   behind = {.address = 0x1000, .start = 0x1001};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		struct frame f = known[i].frame;

		assert_int_equal(profile_frame_stored_line(&f), known[i].stored);
		f.line = f.start = 0;
		profile_frame_set_stored_line(&f, known[i].stored);
		assert_int_equal(f.line, known[i].frame.line);
		assert_true(f.start == known[i].frame.start);
	}
	assert_int_equal(profile_frame_stored_line(&far), 0);
	assert_int_equal(profile_frame_stored_line(&behind), 0);
}

static void test_the_file_of_a_frame_says_its_kind(void **state)
{
	static const struct {
		enum frame_kind kind;
		const char *path;
	} files[] = {
		{FRAME_APP, ""},
		{FRAME_APP, "[vdso]"},
		{FRAME_APP, "/usr/bin/python3.11"},
		{FRAME_APP, "/opt/libcuda"},
		{FRAME_LIBRARY, "/lib/x86_64-linux-gnu/libc.so.6"},
		{FRAME_LIBRARY, "/app/plugin.so"},
		{FRAME_LIBRARY, "/opt/app.so.d/server"},
		{FRAME_CUDA, "/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03"},
		{FRAME_CUDA, "libcuda.so.1"},
		{FRAME_CUDA, "/usr/lib64/libnvidia-ptxjitcompiler.so.550.163.01"},
		{FRAME_CUDA, "/srv/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"},
		{FRAME_CUDA, "/srv/site-packages/torch/lib/libcudart-d0da41ae.so.11.0"},
		{FRAME_CUDA, "/usr/local/cuda/lib64/libnvrtc-builtins.so.12.9"},
		{FRAME_CUDA, "/srv/site-packages/torch/lib/libnvrtc-builtins-2dc4bf68.so.11.8"},
		{FRAME_CUDA, "/usr/local/cuda/lib64/libcublas.so.12"},
		{FRAME_CUDA, "/usr/local/cuda/lib64/libcublasLt.so.12"},
		{FRAME_CUDA, "/usr/lib/libcudnn_engines_precompiled.so.9"},
		{FRAME_CUDA, "/usr/lib/libcudnn.so.9"},
		{FRAME_CUDA, "/usr/lib/libnccl.so.2.27.3"},
		{FRAME_CUDA, "/usr/lib/libcupti.so.12"},
		{FRAME_CUDA, "/usr/lib/libnppif.so.12"},
		/* a library of the driver, but not of CUDA */
		{FRAME_LIBRARY, "/usr/lib/libnvidia-glcore.so.535.261.03"},
		/* CUDA's name is only a part of the name or of the path */
		{FRAME_LIBRARY, "/app/libcuda_helpers.so"},
		{FRAME_LIBRARY, "/app/libmycuda.so.1"},
		{FRAME_LIBRARY, "/app/libcuda.so.1/libapp.so"},
		{FRAME_LIBRARY, "/srv/torch/lib/libtorch_cuda.so"},
		/* libraries that are not NVIDIA's */
		{FRAME_LIBRARY, "/opt/aws-ofi-nccl/lib/libnccl-net.so"},
		{FRAME_LIBRARY, "/opt/libnccl-facade00-net.so"},
		{FRAME_LIBRARY, "/app/libcheckpoint.so"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (profile_module_kind(files[i].path) != files[i].kind)
			fail_msg("%s is not %s", files[i].path,
				 profile_frame_kind_name(files[i].kind));
}

/* A text that a user copies from a table leads back to the kind and the name. */
static void test_the_prefix_of_a_text_says_its_kind(void **state)
{
	static const struct {
		const char *text, *kind, *name;
	} texts[] = {
		{"[k] read", "kernel", "read"},
		{"[l] read", "library", "read"},
		{"[c] launch", "cuda", "launch"},
		{"[p] api", "process", "api"},
		{"[t] worker", "thread", "worker"},
		/* no prefix, or none of these */
		{"main", NULL, "main"},
		{"[k]", NULL, "[k]"},
		{"[x] main", NULL, "[x] main"},
		{"[wait: lock]", NULL, "[wait: lock]"},
		{"", NULL, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const char *name, *kind = profile_kind_of_text(texts[i].text, &name);
		_cleanup_free_ char *text = NULL;

		assert_string_equal(kind ?: "", texts[i].kind ?: "");
		assert_string_equal(name, texts[i].name);
		text = xasprintf("%s%s", profile_kind_prefix(kind ?: ""), name);
		assert_string_equal(text, texts[i].text);
	}
	assert_string_equal(profile_kind_prefix("app"), "");
	assert_string_equal(profile_kind_prefix("unnamed"), "");
}

static void test_total_has_three_levels(void **state)
{
	const struct stack_head thread = {.process_comm = "redis", .thread_comm = "bio"};
	const struct stack_head leader = {
		.process_comm = "redis", .thread_comm = "redis", .main_thread = true};

	(void)state;
	check(&thread, NULL, 0, "[p] redis;[t] bio");
	check(&leader, NULL, 0, "[p] redis");
}

static void test_what_was_waited_for_is_the_leaf(void **state)
{
	struct stack_head h = {.thread_comm = "worker", .wait = WAIT_LOCK};
	const struct frame f[] = {{.kind = FRAME_APP, .name = "main"},
				  {.kind = FRAME_KERNEL, .name = "futex_wait"}};

	(void)state;
	check(&h, f, 2, "[t] worker;main;[k] futex_wait;[wait: lock]");
	for (enum wait w = WAIT_NONE + 1; w < _WAIT_MAX; w++) {
		char text[64];
		enum wait back;

		h.wait = w;
		snprintf(text, sizeof(text), "[t] worker;[wait: %s]", profile_wait_name(w));
		check(&h, NULL, 0, text);
		assert_int_equal(profile_wait_from_name(profile_wait_name(w), &back), 0);
		assert_int_equal(back, w);
	}
	h.wait = WAIT_NONE;
	check(&h, f, 1, "[t] worker;main");
}

static void test_each_event_has_a_row(void **state)
{
	_cleanup_free_ char *names = profile_event_names(), *fields = profile_event_fields();

	(void)state;
	assert_true(str_has_prefix(names, "on-cpu, off-cpu, mem-alloc, "));
	assert_true(str_has_prefix(fields, "onCpu, offCpu, memAlloc, "));
	for (enum event e = 0; e < _EVENT_MAX; e++) {
		const struct event_info *i = profile_event_info(e);
		enum event back;

		assert_true(i->name && i->spec_field && i->unit && i->otlp_sample_type && i->done);
		assert_int_equal(profile_event_from_name(i->name, &back), 0);
		assert_int_equal(back, e);
		assert_non_null(strstr(names, i->name));
		assert_non_null(strstr(fields, i->spec_field));
	}
}

/* Programs push these: no target can ask for them. */
static void test_events_that_are_pushed(void **state)
{
	_cleanup_free_ char *names = profile_event_names(), *fields = profile_event_fields(),
			    *sampled = profile_sampled_event_names();
	enum event back;
	size_t n = 0;

	(void)state;
	PROFILE_EACH_EVENT (e) {
		const struct event_info *i = profile_event_info(e);

		assert_non_null(strstr(names, i->name));
		assert_int_equal(profile_event_from_name(i->name, &back), 0);
		assert_int_equal(back, e);
		assert_true(i->spec_field || e >= EVENT_CPU);
		if (e < EVENT_CPU)
			continue;
		n++;
		assert_true(i->unit && i->otlp_sample_type && i->done && !i->spec_field);
	}
	assert_int_equal(n, _EVENT_ALL - EVENT_CPU);
	assert_null(strstr(sampled, "goroutines"));
	assert_null(strstr(fields, "goroutines"));
	assert_int_equal(profile_event_from_name("", &back), -ENOENT);
}

/* Stores have these numbers in their tables. */
static void test_numbers_in_stores_stay(void **state)
{
	(void)state;
	assert_int_equal(EVENT_RDMA_LATENCY, 8);
	assert_int_equal(EVENT_CPU, 16);
	assert_int_equal(EVENT_BLOCK_DURATION, 26);
	assert_int_equal(FRAME_LIBRARY, 1);
	assert_int_equal(FRAME_CUDA, 6);
	assert_int_equal(FRAME_MARKER, 8);
	assert_int_equal(WAIT_RUNQUEUE, 1);
	assert_int_equal(WAIT_OTHER, 8);
	assert_int_equal(WAIT_GPU, 9);
}

static void test_semicolon_cannot_split_a_frame(void **state)
{
	const struct stack_head h = {.thread_comm = "a;b"};
	const struct frame f = {.kind = FRAME_APP, .name = "f;g"};

	(void)state;
	check(&h, &f, 1, "[t] a:b;f:g");
}

static void test_marker_does_not_hide_the_outermost_frame(void **state)
{
	const struct stack_head h = {.thread_comm = "t"};
	const struct frame f[] = {
		{.kind = FRAME_MARKER, .name = "[truncated]"},
		{.kind = FRAME_APP, .address = 1},
	};

	(void)state;
	check(&h, f, 2, "[t] t;[truncated];[unknown start_thread?]");
}

static void test_batch_interns(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	char name[16];
	uint32_t first, again, other;
	struct frame f[2] = {{.kind = FRAME_APP, .name = name},
			     {.kind = FRAME_APP, .name = "leaf"}};

	(void)state;
	strcpy(name, "root");
	assert_int_equal(profile_batch_stack(b, f, 2, &first), 0);
	assert_int_equal(profile_batch_stack(b, f, 2, &again), 0);
	strcpy(name, "else");
	assert_int_equal(profile_batch_stack(b, f, 2, &other), 0);
	assert_int_equal(first, again);
	assert_int_not_equal(first, other);
	assert_string_equal(b->stacks[first].frames[0]->name, "root");
	assert_ptr_equal(b->stacks[first].frames[1], b->stacks[other].frames[1]);
	assert_ptr_equal(profile_batch_str(b, "root"), b->stacks[first].frames[0]->name);
}

static void test_batch_grows_and_refuses(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	static struct frame deep[STACK_MAX_FRAMES + 1];
	uint32_t index;

	(void)state;
	for (uint32_t i = 0; i < 5000; i++) {
		struct frame f = {.kind = FRAME_APP, .address = i};

		assert_int_equal(profile_batch_stack(b, &f, 1, &index), 0);
		assert_int_equal(index, i);
	}
	assert_int_equal(profile_batch_stack(b, deep, STACK_MAX_FRAMES + 1, &index), -E2BIG);
	assert_int_equal(index, 4999);
}

static void test_links_are_interned_and_limited(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile_link l = {{1}, {2}};
	uint32_t first, again = 0, other;

	(void)state;
	assert_int_equal(profile_batch_find_link(b, &l), 0);
	assert_int_equal(profile_batch_link(b, &l, &first), 0);
	assert_int_equal(first, 1);
	assert_int_equal(profile_batch_find_link(b, &l), 1);
	assert_int_equal(profile_batch_link(b, &l, &again), 0);
	assert_int_equal(again, 1);
	for (uint32_t i = 1; i < BATCH_MAX_LINKS; i++) {
		memcpy(l.span_id, &i, sizeof(i));
		l.span_id[7] = 1;
		assert_int_equal(profile_batch_link(b, &l, &other), 0);
		assert_int_equal(other, i + 1);
	}
	l.trace_id[5] = 1;
	assert_int_equal(profile_batch_link(b, &l, &other), -E2BIG);
	l = (struct profile_link){{1}, {2}};
	assert_int_equal(profile_batch_link(b, &l, &again), 0);
	assert_int_equal(again, 1);
	assert_int_equal(b->n_links, BATCH_MAX_LINKS);
	assert_memory_equal(&b->links[0], &l, sizeof(l));
}

static void test_tags_are_sorted_and_replaced(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);

	(void)state;
	profile_tag(b, p, "pod_ns", "app");
	profile_tag(b, p, "pod", "web-1");
	profile_tag(b, p, "pod_ns", "other");
	assert_int_equal(p->tags.n, 2);
	assert_string_equal(p->tags.items[0].key, "pod");
	assert_string_equal(profile_tag_get(p, "pod_ns"), "other");
	assert_null(profile_tag_get(p, "pod_no"));
}

static void test_losses_add_up_by_reason(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);

	(void)state;
	profile_lose(b, p, "ring_full", 3, 0);
	profile_lose(b, p, "ring_full", 4, 0);
	assert_int_equal(p->n_losses, 1);
	assert_int_equal(p->losses[0].n_samples, 7);
}

static void test_profile_id_is_sha256(void **state)
{
	const char *const parts[] = {"a", "b"};
	uint8_t id[16];
	char hex[33];

	(void)state;
	profile_id_make(parts, 2, id);
	hex_encode(id, 16, hex);
	/* the first 32 digits of: printf 'a\0b' | sha256sum */
	assert_string_equal(hex, "59b271ae1bbcb1d31d41929817f4b16f");
}

static void test_pprof(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	const struct frame f[] = {{.kind = FRAME_APP, .name = "RegExp:a;b"},
				  {.kind = FRAME_CUDA, .name = "cuInit"},
				  {.kind = FRAME_KERNEL, .name = "sys"}};
	_cleanup_buf_ struct buf out;
	struct profile_sample *s;

	(void)state;
	buf_init(&out, 0);
	p->app_service = profile_batch_str(b, "api");
	s = profile_add(b, p);
	s->value = 10101;
	s->n_samples = 1;
	assert_int_equal(profile_batch_stack(b, f, ARRAY_SIZE(f), &s->stack), 0);
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = b->profiles[0]->event},
				       &out),
			 0);
	assert_non_null(memmem(out.data, out.len, "[k] sys", 7));
	assert_non_null(memmem(out.data, out.len, "[c] cuInit", 10));
	assert_non_null(memmem(out.data, out.len, "RegExp:a;b", 10));
	assert_non_null(memmem(out.data, out.len, "on_cpu", 6));
	assert_null(memmem(out.data, out.len, "[wait", 5));
	p->event = EVENT_OFF_CPU;
	s->wait = WAIT_DISK;
	buf_reset(&out);
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = b->profiles[0]->event},
				       &out),
			 0);
	assert_non_null(memmem(out.data, out.len, "[wait: disk]", 12));
	if (getenv("PPROF_OUT")) {
		FILE *file = fopen(getenv("PPROF_OUT"), "w");

		fwrite(out.data, 1, out.len, file);
		fclose(file);
	}
}

/* Returns how many fields with this number a message has. */
static unsigned n_fields(const struct buf *b, unsigned field)
{
	const uint8_t *p = (const uint8_t *)b->data, *end = p + b->len;
	unsigned count = 0;

	while (p < end) {
		uint64_t tag = *p++, n = 0; /* one byte, because all field numbers are below 16 */

		for (unsigned shift = 0, more = 0x80; more; shift += 7) {
			more = *p & 0x80;
			n |= (uint64_t)(*p++ & 0x7f) << shift;
		}
		p += (tag & 7) == 2 ? n : 0;
		count += tag >> 3 == field;
	}
	assert_ptr_equal(p, end);
	return count;
}

/*
 * Functions with one name stay separate (Python's "<module>" of each file, lambdas), and so do
 * files with one path (in several containers).
 */
static void test_pprof_keeps_places_apart(void **state)
{
	enum { MAPPING = 3, LOCATION, FUNCTION };
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile_sample *s = profile_add(b, profile_batch_profile(b));
	const struct frame f[] = {
		{.kind = FRAME_PYTHON, .name = "<module>", .file = "a.py", .line = 3},
		{.kind = FRAME_PYTHON, .name = "<module>", .file = "b.py", .line = 3},
		{.kind = FRAME_PYTHON, .name = "<module>", .file = "b.py", .line = 1234567},
		{.kind = FRAME_APP, .name = "main", .module = "/app/server", .build_id = "aa"},
		{.kind = FRAME_APP, .name = "main", .module = "/app/server", .build_id = "bb"},
	};
	_cleanup_buf_ struct buf out;

	(void)state;
	buf_init(&out, 0);
	assert_int_equal(profile_batch_stack(b, f, ARRAY_SIZE(f), &s->stack), 0);
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = b->profiles[0]->event},
				       &out),
			 0);
	assert_int_equal(n_fields(&out, LOCATION), 5);
	assert_int_equal(n_fields(&out, FUNCTION), 4);
	assert_int_equal(n_fields(&out, MAPPING), 2);
	/* Function.start_line, Line.line: 1234567 */
	assert_non_null(memmem(out.data, out.len, "\x28\x87\xad\x4b", 4));
	assert_non_null(memmem(out.data, out.len, "\x10\x87\xad\x4b", 4));
}

/* The bytes of a message: fields of one byte each. */
static void assert_has(const struct buf *b, const char *bytes, size_t n)
{
	assert_non_null(memmem(b->data, b->len, bytes, n));
}

/*
 * Functions inlined at one address are lines of one location, innermost first. Another function at
 * the same address, such as a caller of itself, is a location of its own.
 */
static void test_inlined_functions_are_lines_of_one_location(void **state)
{
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile_sample *s = profile_add(b, profile_batch_profile(b));
	const struct frame f[] = {
		{.kind = FRAME_APP, .name = "run", .module = "/m", .address = 5, .line = 1},
		{.kind = FRAME_APP, .name = "run", .module = "/m", .address = 5, .line = 1},
		{.inlined = true, .name = "in", .module = "/m", .address = 5, .line = 2},
		{.inlined = true, .name = "innermost", .module = "/m", .address = 5, .line = 3},
	};
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	assert_int_equal(profile_batch_stack(b, f, ARRAY_SIZE(f), &s->stack), 0);
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = EVENT_ON_CPU}, &out),
			 0);
	assert_int_equal(n_fields(&out, 4), 2);
	/* location {id 1, mapping 1, address 5, line {function 1, line 1}} */
	assert_has(&out, "\x22\x0c\x08\1\x10\1\x18\5\x22\4\x08\1\x10\1", 14);
	/* location {id 2, mapping 1, address 5, line {2, 3}, line {3, 2}, line {1, 1}} */
	assert_has(&out,
		   "\x22\x18\x08\2\x10\1\x18\5\x22\4\x08\2\x10\3\x22\4\x08\3\x10\2"
		   "\x22\4\x08\1\x10\1",
		   26);
	/* the sample has the leaf's location first, and two values */
	assert_has(&out, "\x12\x08\x0a\2\2\1\x12\2", 8);
}

/*
 * The flags of a mapping say what its frames have, and without one pprof looks for names itself: in
 * the file with this build id, but not in just any file of this path.
 */
static void test_flags_of_mappings(void **state)
{
	static const struct {
		struct frame f;
		const char *flags; /* fields 7 to 10: functions, files, lines, inlines */
	} cases[] = {
		{{.module = "/m", .build_id = "aa"}, "\x38\0\x40\0\x48\0\x50\0"},
		{{.module = "/m"}, "\x38\1\x40\0\x48\0\x50\0"},
		{{.module = "/m", .name = "f", .file = "f.c"}, "\x38\1\x40\1\x48\0\x50\0"},
		{{.module = "/m", .name = "f", .line = 3}, "\x38\1\x40\0\x48\1\x50\0"},
		{{.module = "/m", .name = "f", .inlined = true}, "\x38\1\x40\0\x48\0\x50\1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
		struct profile_sample *s = profile_add(b, profile_batch_profile(b));
		_cleanup_buf_ struct buf out = {0};

		assert_int_equal(profile_batch_stack(b, &cases[i].f, 1, &s->stack), 0);
		assert_int_equal(
			profile_write(profile_pprof_writer, b, &(struct profile_file){0}, &out), 0);
		assert_has(&out, cases[i].flags, 8);
	}
}

/*
 * The types of an event, also without samples; the notes; and the time that an on-CPU sample stands
 * for, if no profile says it.
 */
static void test_what_a_pprof_file_says_of_itself(void **state)
{
	static const char *const notes[] = {"a note"};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile_file file = {.event = EVENT_MEM_INUSE, .notes = notes, .n_notes = 1};
	struct profile *p;
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	assert_int_equal(profile_write(profile_pprof_writer, b, &file, &out), 0);
	assert_has(&out, "mem_inuse\x32\5bytes", 16);
	assert_has(&out, "\x32\6a note\x68\5", 10); /* string 5, comment 5 */
	assert_int_equal(n_fields(&out, 12), 0);    /* no period */
	assert_int_equal(n_fields(&out, 14), 1);    /* the default type */
	p = profile_batch_profile(b);
	p->event = file.event = EVENT_ON_CPU;
	*profile_add(b, p) = (struct profile_sample){STACK_NONE, .value = 20, .n_samples = 2};
	buf_reset(&out);
	assert_int_equal(profile_write(profile_pprof_writer, b, &file, &out), 0);
	assert_has(&out, "\x60\x90\x4e", 3); /* period 10000 (ns): 10 us */
}

/* One type, and one value a sample, which stops at the greatest number. */
static void test_a_pprof_file_with_the_values_of_another_tool(void **state)
{
	static const struct profile_value ns = {"cpu", "nanoseconds", 1000};
	const struct profile_file file = {.event = EVENT_ON_CPU, .value = &ns};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile *p = profile_batch_profile(b);
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	*profile_add(b, p) = (struct profile_sample){STACK_NONE, .value = 20, .n_samples = 2};
	*profile_add(b, p) = (struct profile_sample){STACK_NONE, .value = INT64_MAX};
	assert_int_equal(profile_write(profile_pprof_writer, b, &file, &out), 0);
	assert_int_equal(n_fields(&out, 1), 1);
	assert_has(&out, "\x32\3cpu\x32\x0bnanoseconds", 18);
	assert_has(&out, "\x12\7\x0a\0\x12\3\xa0\x9c\1", 9); /* 20000 */
	assert_has(&out, "\x12\x0d\x0a\0\x12\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 15);
}

/* A thread's name of 15 bytes may end inside of a character. */
static void test_texts_of_pprof_are_utf8(void **state)
{
	const struct frame f = {.kind = FRAME_APP, .name = "a\xffz"};
	_cleanup_(profile_batch_freep) struct batch *b = profile_batch_new();
	struct profile_sample *s = profile_add(b, profile_batch_profile(b));
	_cleanup_buf_ struct buf out = {0};

	(void)state;
	s->thread_comm = profile_batch_str(b, "\xc3\xa4-worker-numb\xc3");
	assert_int_equal(profile_batch_stack(b, &f, 1, &s->stack), 0);
	assert_int_equal(profile_write(profile_pprof_writer, b,
				       &(struct profile_file){.event = EVENT_ON_CPU}, &out),
			 0);
	assert_has(&out, "\x11\xc3\xa4-worker-numb" UTF8_REPLACEMENT, 18);
	assert_has(&out, "\5a" UTF8_REPLACEMENT "z", 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms_of_the_documents),
		cmocka_unit_test(test_functions_without_a_name_are_told_by_their_start),
		cmocka_unit_test(test_lines_and_starts_are_stored_as_one_number),
		cmocka_unit_test(test_the_file_of_a_frame_says_its_kind),
		cmocka_unit_test(test_the_prefix_of_a_text_says_its_kind),
		cmocka_unit_test(test_total_has_three_levels),
		cmocka_unit_test(test_what_was_waited_for_is_the_leaf),
		cmocka_unit_test(test_each_event_has_a_row),
		cmocka_unit_test(test_events_that_are_pushed),
		cmocka_unit_test(test_numbers_in_stores_stay),
		cmocka_unit_test(test_semicolon_cannot_split_a_frame),
		cmocka_unit_test(test_marker_does_not_hide_the_outermost_frame),
		cmocka_unit_test(test_batch_interns),
		cmocka_unit_test(test_batch_grows_and_refuses),
		cmocka_unit_test(test_links_are_interned_and_limited),
		cmocka_unit_test(test_tags_are_sorted_and_replaced),
		cmocka_unit_test(test_losses_add_up_by_reason),
		cmocka_unit_test(test_profile_id_is_sha256),
		cmocka_unit_test(test_pprof),
		cmocka_unit_test(test_pprof_keeps_places_apart),
		cmocka_unit_test(test_inlined_functions_are_lines_of_one_location),
		cmocka_unit_test(test_flags_of_mappings),
		cmocka_unit_test(test_what_a_pprof_file_says_of_itself),
		cmocka_unit_test(test_texts_of_pprof_are_utf8),
		cmocka_unit_test(test_a_pprof_file_with_the_values_of_another_tool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
