/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the children that learn runtimes and name frames. This program is the process that has the
 * runtime, and with VERB it is the child. If the question's token is the address of one of the
 * words below, the child has been taken over, and lies.
 */
#include "node/runtime/ask_format.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/base/testchild.h"
#include "node/runtime/testlive.h"
#include "node/runtime/testreader.h"

#define VERB	   "__taken"
#define MARK	   "ask_test_text"
#define OTHER_MARK "ask_test_other"

/* ---- two runtimes ---- */

/* the version of each, or a word that says how it is learnt; "": the process does not have it */
extern char ask_test_text[48], ask_test_other[48];
char ask_test_text[48], ask_test_other[48];

static int learn_text(const struct runtime_look *look, const char *mark, size_t data_bytes,
		      struct runtime_learnt *old, struct runtime_learnt *ret)
{
	_cleanup_free_ char *text = NULL;
	const struct mapping *m;
	uint64_t address, size;
	int r = runtime_find_mark(look, mark, &m, &address, &size);

	if (r == 0)
		r = runtime_memory_string(look->memory, address, sizeof(ret->version), &text);
	if (r < 0)
		return r;
	if (!*text)
		return -ENOENT;
	if (streq(text, "starts"))
		return -EAGAIN;
	snprintf(ret->version, sizeof(ret->version), "%s", text);
	snprintf(ret->problem, sizeof(ret->problem), "%s", old ? "again" : "first");
	ret->data_bytes = streq(text, "small") ? 8 : data_bytes;
	ret->data = xcalloc(1, ret->data_bytes);
	ret->ranges = xcalloc(RUNTIME_RANGES_MAX, sizeof(*ret->ranges));
	ret->ranges[0] = (struct runtime_range){m->start, m->start + 16, false};
	if (streq(text, "outside"))
		ret->ranges[0] = (struct runtime_range){4096, 8192, true};
	if (streq(text, "empty"))
		ret->ranges[0].end = m->start;
	ret->n_ranges = 1;
	if (streq(text, "many ranges"))
		runtime_ranges_cut(ret, "ranges");
	ret->state = TAKE_PTR(text);
	if (old)
		free(TAKE_PTR(old->state));
	return 0;
}

static int learn(const struct runtime_look *look, struct runtime_learnt *old,
		 struct runtime_learnt *ret)
{
	return learn_text(look, MARK, sizeof(struct pf_python), old, ret);
}

static int learn_other(const struct runtime_look *look, struct runtime_learnt *old,
		       struct runtime_learnt *ret)
{
	return learn_text(look, OTHER_MARK, sizeof(struct pf_luajit), old, ret);
}

#define WHOLE 9 /* type of a frame whose text is read as a whole */

/* The names of a frame: b of them. */
static int resolve(void *state, struct memory *m, const struct runtime_words *frame,
		   const struct runtime_words *caller, struct runtime_names *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = runtime_memory_string(m, frame->a, frame->type == WHOLE ? 200000 : 64, &text);

	for (uint64_t i = 0; r == 0 && i < frame->b; i++)
		runtime_names_add(ret, xasprintf("%s.%s", (char *)state, text),
				  caller ? xasprintf("file of %d", (int)caller->type) : NULL,
				  (uint32_t)i, i > 0);
	return r;
}

static const char *const marks[] = {MARK, NULL};
static const struct runtime_ops fake = {.name = "fake",
					.title = "Fake",
					.frame_kind = FRAME_PYTHON,
					.marks = marks,
					.learn = learn,
					.resolve = resolve,
					.forget = free};
static const char *const other_marks[] = {OTHER_MARK, NULL};
static const struct runtime_ops fake_other = {.name = "other",
					      .title = "Other",
					      .frame_kind = FRAME_LUA,
					      .marks = other_marks,
					      .learn = learn_other,
					      .resolve = resolve,
					      .forget = free};
static const struct runtime_ops *const table[_PF_RUNTIME_MAX] = {
	[PF_RUNTIME_PYTHON] = &fake, [PF_RUNTIME_LUAJIT] = &fake_other};

/* ---- the child that is taken over ---- */

static uint64_t sequence;
static struct {
	_Alignas(8) char bytes[READER_MESSAGE_MAX];
	size_t n;
} said;

static void put(const void *bytes, size_t n)
{
	memcpy(said.bytes + said.n, bytes, n);
	said.n += n;
}

static void say(void)
{
	(void)child_send(CHILD_SOCKET_FD, said.bytes, said.n, NULL, 0);
	said.n = 0;
}

static void say_end(enum runtimes_message what, uint64_t read_bytes, uint64_t lost)
{
	struct end_message e = {.head = {.sequence = sequence, .what = what},
				.read_bytes = read_bytes,
				.lost = {lost}};

	put(&e, sizeof(e));
	say();
}

static const struct learnt_message learnt = {.head = {.what = LEARNT, .n = PF_RUNTIME_PYTHON},
					     .data_bytes = sizeof(struct pf_python)};

/* Says LEARNT with so many bytes behind it. */
static void say_learnt(struct learnt_message m, size_t bytes)
{
	static const char zeros[READER_MESSAGE_MAX];

	m.head.sequence = sequence;
	put(&m, sizeof(m));
	put(zeros, bytes);
	say();
}

#define LEARN_LIE(name, bytes, member, value)                                                      \
	static void name(void)                                                                     \
	{                                                                                          \
		struct learnt_message m = learnt;                                                  \
                                                                                                   \
		m.member = (value);                                                                \
		say_learnt(m, bytes);                                                              \
		say_end(LEARNT_ALL, 0, 0);                                                         \
	}
LEARN_LIE(another_runtime, sizeof(struct pf_python), head.n, PF_RUNTIME_JVM)
LEARN_LIE(no_runtime, sizeof(struct pf_python), head.n, UINT32_MAX)
LEARN_LIE(large_data, RUNTIME_DATA_MAX, data_bytes, RUNTIME_DATA_MAX)
LEARN_LIE(short_data, 8, data_bytes, 8)
LEARN_LIE(data_beyond_the_message, 8, data_bytes, sizeof(struct pf_python))
LEARN_LIE(bytes_behind, sizeof(struct pf_python) + 1, data_bytes, sizeof(struct pf_python))
LEARN_LIE(many_ranges, sizeof(struct pf_python) + (RUNTIME_RANGES_MAX + 1) * 24, n_ranges,
	  RUNTIME_RANGES_MAX + 1)
LEARN_LIE(ranges_beyond_the_message, sizeof(struct pf_python), n_ranges, 2)
LEARN_LIE(good_error, sizeof(struct pf_python), error, 1)
LEARN_LIE(error_with_data, sizeof(struct pf_python), error, -EAGAIN)
LEARN_LIE(perhaps_named, sizeof(struct pf_python), named, 2)
LEARN_LIE(another_message, sizeof(struct pf_python), head.what, 77)

static void twice(void)
{
	say_learnt(learnt, sizeof(struct pf_python));
	say_learnt(learnt, sizeof(struct pf_python));
	say_end(LEARNT_ALL, 0, 0);
}

static void names_for_runtimes(void)
{
	say_end(NAMES_ALL, 0, 0);
}

static void much_lost(void)
{
	say_end(LEARNT_ALL, 0, UINT64_MAX);
}

static void much_read(void)
{
	say_end(LEARNT_ALL, UINT64_MAX, 0);
}

/* Says a piece of an index of generated code that says to have so many bytes. */
static void say_generated(uint32_t says, size_t bytes)
{
	static const char zeros[READER_MESSAGE_MAX];
	struct generated_message m = {.head = {.sequence = sequence, .what = GENERATED, .n = says}};

	put(&m, sizeof(m));
	put(zeros, bytes);
	say();
}

static void rows_beyond_the_message(void)
{
	say_generated(9, 8);
	say_end(LEARNT_ALL, 0, 0);
}

static void no_rows(void)
{
	say_generated(0, 0);
	say_end(LEARNT_ALL, 0, 0);
}

static void many_rows(void)
{
	for (size_t bytes = 0; bytes <= GENERATED_INDEX_MAX; bytes += 32768)
		say_generated(32768, 32768);
	say_end(LEARNT_ALL, 0, 0);
}

static void another_sequence(void)
{
	sequence--;
	say_end(LEARNT_ALL, 0, 0);
}

static void no_message(void)
{
	put("x", 1);
	say();
}

static void with_a_descriptor(void)
{
	const struct end_message e = {.head = {.sequence = sequence, .what = LEARNT_ALL}};
	int fd = CHILD_SOCKET_FD;

	(void)child_send(CHILD_SOCKET_FD, &e, sizeof(e), &fd, 1);
}

static void begin_names(uint32_t n)
{
	const struct reader_head head = {.sequence = sequence, .what = NAMES, .n = n};

	put(&head, sizeof(head));
}

static void put_name(struct wire_name w, const char *text, size_t n)
{
	put(&w, sizeof(w));
	put(text, n);
}

static const struct wire_name last = {.last = 1, .kind = FRAME_PYTHON};

/* Says one frame with one name, whose record has another value. */
#define NAME_LIE(name, n, member, value)                                                           \
	static void name(void)                                                                     \
	{                                                                                          \
		struct wire_name w = {.name_n = 4};                                                \
                                                                                                   \
		w.member = (value);                                                                \
		begin_names(2);                                                                    \
		put_name(w, "nameandmore", n);                                                     \
		put_name(last, "", 0);                                                             \
		say();                                                                             \
		say_end(NAMES_ALL, 0, 0);                                                          \
	}
NAME_LIE(name_beyond_the_message, 4, name_n, UINT16_MAX)
NAME_LIE(file_beyond_the_message, 4, file_n, WIRE_TEXT_MAX)
NAME_LIE(file_that_is_none, 8, file_n, 4)
NAME_LIE(bytes_between, 11, name_n, 4)
NAME_LIE(no_text_ends, 4, last, 1)

#define FRAME_LIE(name, member, value)                                                             \
	static void name(void)                                                                     \
	{                                                                                          \
		struct wire_name w = last;                                                         \
                                                                                                   \
		w.member = (value);                                                                \
		begin_names(2);                                                                    \
		put_name((struct wire_name){.name_n = 4}, "name", 4);                              \
		put_name(w, "", 0);                                                                \
		say();                                                                             \
		say_end(NAMES_ALL, 0, 0);                                                          \
	}
FRAME_LIE(kind_of_the_kernel, kind, FRAME_KERNEL)
FRAME_LIE(kind_of_another_runtime, kind, FRAME_JVM)
FRAME_LIE(no_kind, kind, UINT8_MAX)
FRAME_LIE(name_with_error, error, -ENOENT)
FRAME_LIE(good_error_of_a_name, error, 1)

static void nul_in_the_name(void)
{
	begin_names(2);
	put_name((struct wire_name){.name_n = 4}, "n\0me", 4);
	put_name(last, "", 0);
	say();
	say_end(NAMES_ALL, 0, 0);
}

static void another_count(void)
{
	begin_names(3);
	put_name((struct wire_name){.name_n = 4}, "name", 4);
	put_name(last, "", 0);
	say();
	say_end(NAMES_ALL, 0, 0);
}

static void no_count(void)
{
	begin_names(0);
	say();
	say_end(NAMES_ALL, 0, 0);
}

static void too_few_frames(void)
{
	say_end(NAMES_ALL, 0, 0);
}

static void too_many_frames(void)
{
	begin_names(2);
	put_name(last, "", 0);
	put_name(last, "", 0);
	say();
	say_end(NAMES_ALL, 0, 0);
}

static void unknown_after_names(void)
{
	begin_names(2);
	put_name((struct wire_name){.name_n = 4}, "name", 4);
	put_name(last, "", 0);
	say();
	say_end(NAMES_UNKNOWN, 0, 0);
}

/* Never ends. */
static void too_many_names(void)
{
	for (;;) {
		begin_names(1);
		put_name((struct wire_name){.name_n = 4}, "name", 4);
		say();
	}
}

static void invented(void)
{
	begin_names(2);
	put_name((struct wire_name){.name_n = 4, .has_file = 1, .file_n = 3}, "in\nvent", 7);
	put_name(last, "", 0);
	say();
	say_end(NAMES_ALL, 0, 0);
}

struct lie {
	const char *name;
	void (*tell)(void);
};
#define ROW(name)                                                                                  \
	{                                                                                          \
#name, name                                                                        \
	}
static const struct lie learn_lies[] = {
	ROW(another_runtime),
	ROW(no_runtime),
	ROW(large_data),
	ROW(short_data),
	ROW(data_beyond_the_message),
	ROW(bytes_behind),
	ROW(many_ranges),
	ROW(ranges_beyond_the_message),
	ROW(good_error),
	ROW(error_with_data),
	ROW(perhaps_named),
	ROW(another_message),
	ROW(twice),
	ROW(names_for_runtimes),
	ROW(much_lost),
	ROW(much_read),
	ROW(rows_beyond_the_message),
	ROW(no_rows),
	ROW(many_rows),
	ROW(another_sequence),
	ROW(no_message),
	ROW(with_a_descriptor),
};
static const struct lie name_lies[] = {
	ROW(name_beyond_the_message),
	ROW(file_beyond_the_message),
	ROW(file_that_is_none),
	ROW(bytes_between),
	ROW(no_text_ends),
	ROW(kind_of_the_kernel),
	ROW(kind_of_another_runtime),
	ROW(no_kind),
	ROW(name_with_error),
	ROW(good_error_of_a_name),
	ROW(nul_in_the_name),
	ROW(another_count),
	ROW(no_count),
	ROW(too_few_frames),
	ROW(too_many_frames),
	ROW(unknown_after_names),
	ROW(too_many_names),
	ROW(much_lost),
	ROW(another_sequence),
	ROW(no_message),
	ROW(with_a_descriptor),
	ROW(invented), /* is none, so it must be the last row */
};

static bool tell(const struct lie *lies, size_t n, const char *word)
{
	for (size_t i = 0; i < n; i++)
		if (streq(lies[i].name, word)) {
			lies[i].tell();
			return true;
		}
	return false;
}

static int answer(const void *message, size_t n, const int fds[2])
{
	const struct learn_question *l = message;
	const struct names_question *q = message;
	bool learns = l->head.what == READ_RUNTIMES;
	char word[64] = "";

	sequence = l->head.sequence;
	(void)pread(fds[0], word, sizeof(word) - 1, (off_t)(learns ? l->token : q->token));
	if (learns ? tell(learn_lies, ARRAY_SIZE(learn_lies), word)
		   : tell(name_lies, ARRAY_SIZE(name_lies), word))
		return 0;
	return testreader_answer(message, n, fds);
}

/* ---- the agent ---- */

static struct live_process live;
static char word[64];

static int set_up(void **state)
{
	(void)state;
	runtime_reader_use(NULL, VERB);
	snprintf(ask_test_text, sizeof(ask_test_text), "1.0");
	ask_test_other[0] = '\0';
	live_open(&live, getpid());
	live.maps->charged_ns = 1;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	live_forget(&live);
	return 0;
}

static struct runtime_process *learn_again(struct runtime_process *p, int expected)
{
	struct runtime_process *ret = NULL;
	bool again;

	assert_int_equal(runtime_learn(p, live.maps, live.indexes, NULL, &ret, &again), expected);
	return ret;
}

static struct runtime_ask frame_of(const char *name, uint64_t n)
{
	return (struct runtime_ask){.kind = PF_RUNTIME_PYTHON, .frame = {1, (uintptr_t)name, n}};
}

static void assert_named(struct runtime_process *p, const char *name, const char *expected)
{
	struct runtime_ask a = frame_of(name, 1);

	assert_int_equal(live_resolve(&live, p, &a, 1), 0);
	assert_int_equal(a.error, 0);
	assert_int_equal(a.names.n, 1);
	assert_string_equal(a.names.items[0].name, expected);
	runtime_names_done(&a.names);
}

static const struct runtime_learnt *learnt_of(const struct runtime_process *p)
{
	assert_int_equal(runtime_process_n(p), 1);
	assert_int_equal(runtime_process_at(p, 0).kind, PF_RUNTIME_PYTHON);
	return runtime_process_at(p, 0).learnt;
}

static uint64_t count(const char *name, const char *reason)
{
	return counter_get(counter(name, reason ? "reason" : NULL, reason));
}

/* ---- tests ---- */

static void a_child_learns_and_names(void **state)
{
	struct runtime_process *p = learn_again(NULL, 0), *q;
	struct runtime_ask a = frame_of("two", 2);

	(void)state;
	assert_string_equal(learnt_of(p)->version, "1.0");
	assert_string_equal(learnt_of(p)->problem, "first");
	assert_int_equal(learnt_of(p)->data_bytes, sizeof(struct pf_python));
	assert_int_equal(learnt_of(p)->n_ranges, 1);
	assert_null(learnt_of(p)->state);
	assert_true(testchild_pid("podflame-reader") > 0);
	a.has_caller = true;
	a.caller.type = 7;
	assert_int_equal(live_resolve(&live, p, &a, 1), 0);
	assert_int_equal(a.names.n, 2);
	assert_int_equal(a.names.kind, FRAME_PYTHON);
	assert_string_equal(a.names.items[1].name, "1.0.two");
	assert_string_equal(a.names.items[1].file, "file of 7");
	assert_int_equal(a.names.items[1].line, 1);
	assert_true(a.names.items[1].inlined);
	assert_false(a.names.items[0].inlined);
	runtime_names_done(&a.names);
	q = learn_again(p, 0); /* the child knows the first result */
	assert_string_equal(learnt_of(q)->problem, "again");
	assert_named(q, "x", "1.0.x");
	assert_named(p, "x", "1.0.x"); /* both share what the child has */
	runtime_process_unref(p);
	runtime_process_unref(q);
}

static void a_new_child_learns_what_the_old_one_knew(void **state)
{
	struct runtime_process *p = learn_again(NULL, 0), *q;
	pid_t before = testchild_pid("podflame-reader"), after;

	(void)state;
	runtime_reader_use(NULL, VERB); /* ends it */
	assert_named(p, "x", "1.0.x");
	after = testchild_pid("podflame-reader");
	assert_true(after > 0 && after != before);
	assert_named(p, "y", "1.0.y");
	assert_int_equal(testchild_pid("podflame-reader"), after);
	runtime_reader_use(NULL, VERB);
	q = learn_again(p, 0);
	assert_string_equal(learnt_of(q)->problem, "first");
	assert_named(q, "x", "1.0.x");
	runtime_process_unref(p);
	runtime_process_unref(q);
}

/* More processes than a child keeps, and the first of them is asked again. */
static void a_child_forgets_and_learns_again(void **state)
{
	struct runtime_process *p = learn_again(NULL, 0);

	(void)state;
	for (unsigned i = 0; i < 260; i++)
		runtime_process_unref(learn_again(NULL, 0));
	assert_named(p, "x", "1.0.x");
	runtime_process_unref(p);
}

/* Another namespace has hundreds of processes, each as large as real ones. No names are lost. */
static void names_come_back_beside_many_processes(void **state)
{
	enum { N = 400, PROCESSES = 250 };
	struct runtime_process *many[PROCESSES], *p;
	struct mappings *own = live.maps, large = *own;
	struct elf_index **indexes = live.indexes;
	char path[] = "/a/path/of/a/mapping/that/has/no/file/and/that/is/rather/long/all/the/same";

	(void)state;
	large.items = xcalloc(own->n + N, sizeof(*large.items));
	live.indexes = xcalloc(own->n + N, sizeof(*live.indexes));
	memcpy(large.items, own->items, own->n * sizeof(*own->items));
	memcpy(live.indexes, indexes, own->n * sizeof(*indexes));
	for (; large.n < own->n + N; large.n++)
		large.items[large.n].path = path;
	live.maps = &large;
	for (size_t i = 0; i < PROCESSES; i++)
		many[i] = learn_again(NULL, 0);
	large.charged_ns = 2;
	p = learn_again(NULL, 0);
	free(large.items);
	free(live.indexes);
	live.maps = own;
	live.indexes = indexes;
	runtime_reader_use(NULL, VERB); /* ends all children */
	assert_named(p, "x", "1.0.x");
	runtime_process_unref(p);
	for (size_t i = 0; i < PROCESSES; i++)
		runtime_process_unref(many[i]);
}

static void who_cannot_be_learnt_now_stays(void **state)
{
	struct runtime_process *p = learn_again(NULL, 0), *q;
	bool again = false;

	(void)state;
	snprintf(ask_test_text, sizeof(ask_test_text), "starts");
	assert_int_equal(runtime_learn(p, live.maps, live.indexes, NULL, &q, &again), 0);
	assert_true(again);
	assert_ptr_equal(p, q);
	assert_named(q, "x", "1.0.x");
	runtime_process_unref(p);
	runtime_process_unref(q);
}

/* A new child cannot learn one of two runtimes, which the old child had learnt. */
static void who_can_be_learnt_later_has_names_later(void **state)
{
	struct runtime_ask asks[] = {frame_of("x", 1), frame_of("x", 1)};
	struct runtime_process *p, *q;
	bool again;

	(void)state;
	snprintf(ask_test_other, sizeof(ask_test_other), "2.0");
	asks[1].kind = PF_RUNTIME_LUAJIT;
	p = learn_again(NULL, 0);
	assert_int_equal(runtime_process_n(p), 2);
	snprintf(ask_test_other, sizeof(ask_test_other), "starts");
	runtime_reader_use(NULL, VERB);
	assert_int_equal(runtime_learn(p, live.maps, live.indexes, NULL, &q, &again), 0);
	assert_int_equal(runtime_process_n(q), 2);
	assert_int_equal(live_resolve(&live, q, asks, 2), 0);
	assert_int_equal(asks[0].error, 0);
	assert_string_equal(asks[0].names.items[0].name, "1.0.x");
	assert_int_equal(asks[1].error, -EBUSY);
	assert_int_equal(asks[1].names.n, 0);
	snprintf(ask_test_other, sizeof(ask_test_other), "2.0");
	assert_int_equal(live_resolve(&live, q, &asks[1], 1), 0);
	assert_int_equal(asks[1].error, 0);
	assert_string_equal(asks[1].names.items[0].name, "2.0.x");
	runtime_names_done(&asks[0].names);
	runtime_names_done(&asks[1].names);
	runtime_process_unref(p);
	runtime_process_unref(q);
}

/* The file was evicted when the child had forgotten the process. Then it is parsed again. */
static void a_file_that_is_parsed_again_gives_names_again(void **state)
{
	struct runtime_process *p = learn_again(NULL, 0);
	struct elf_index **indexes = live.indexes;
	struct runtime_ask a = frame_of("x", 1);

	(void)state;
	runtime_reader_use(NULL, VERB);
	live.indexes = xcalloc(live.maps->n, sizeof(*indexes));
	assert_int_equal(live_resolve(&live, p, &a, 1), 0);
	free(live.indexes);
	live.indexes = indexes;
	assert_int_equal(a.error, -EBUSY);
	assert_named(p, "x", "1.0.x");
	runtime_process_unref(p);
}

static void ranges_are_checked(void **state)
{
	const char *failures = "podflame_runtime_learn_failures_total";
	uint64_t before = count(failures, "inconsistent"), cut = count(failures, "over_limit");
	struct runtime_process *p;

	(void)state;
	snprintf(ask_test_text, sizeof(ask_test_text), "outside");
	p = learn_again(NULL, 0);
	assert_int_equal(learnt_of(p)->n_ranges, 0);
	runtime_process_unref(p);
	snprintf(ask_test_text, sizeof(ask_test_text), "empty");
	assert_null(learn_again(NULL, 0));
	assert_int_equal(count(failures, "inconsistent"), before + 1);
	snprintf(ask_test_text, sizeof(ask_test_text), "many ranges");
	runtime_process_unref(learn_again(NULL, 0));
	assert_int_equal(count(failures, "over_limit"), cut + 1);
}

static void what_the_child_drops_is_counted(void **state)
{
	struct runtime_process *p = learn_again(NULL, 0);
	struct runtime_ask a = frame_of("x", RUNTIME_NAMES_MAX + 5);
	uint64_t before = count("podflame_inlined_frames_dropped_total", NULL);

	(void)state;
	assert_int_equal(live_resolve(&live, p, &a, 1), 0);
	assert_int_equal(a.names.n, RUNTIME_NAMES_MAX);
	assert_int_equal(count("podflame_inlined_frames_dropped_total", NULL), before + 5);
	runtime_names_done(&a.names);
	runtime_process_unref(p);
}

/* More frames than one question has, and one of them cannot be read. */
static void many_frames_are_named(void **state)
{
	enum { N = 2 * NAMES_ASKS_MAX + 3, BAD = NAMES_ASKS_MAX + 7 };
	struct runtime_process *p = learn_again(NULL, 0);
	struct runtime_ask *asks = xcalloc(N, sizeof(*asks));

	(void)state;
	for (size_t i = 0; i < N; i++)
		asks[i] = frame_of("x", 1);
	asks[BAD].frame.a = 16;
	assert_int_equal(live_resolve(&live, p, asks, N), 0);
	for (size_t i = 0; i < N; i++) {
		assert_int_equal(asks[i].error, i == BAD ? -EFAULT : 0);
		assert_int_equal(asks[i].names.n, i != BAD);
		runtime_names_done(&asks[i].names);
	}
	free(asks);
	runtime_process_unref(p);
}

/* Data of another size is a lie. The namespace's processes are not read for a while. */
static void a_loss_stops_its_namespace_only(void **state)
{
	struct runtime_process *p, *other;
	uint64_t refused = count("podflame_reader_failures_total", "answer_refused");
	struct runtime_ask a = frame_of("x", 1);

	(void)state;
	p = learn_again(NULL, 0);
	live.maps->charged_ns = 2;
	other = learn_again(NULL, 0);
	live.maps->charged_ns = 1;
	snprintf(ask_test_text, sizeof(ask_test_text), "small");
	assert_null(learn_again(p, -EBUSY));
	assert_int_equal(count("podflame_reader_failures_total", "answer_refused"), refused + 1);
	assert_int_equal(live_resolve(&live, p, &a, 1), 0);
	assert_int_equal(a.error, -EBUSY);
	assert_int_equal(a.names.n, 0);
	assert_named(other, "x", "1.0.x");
	runtime_process_unref(p);
	runtime_process_unref(other);
}

/* Asks a child of the namespace that has been taken over by a word. */
static int ask_names(uint64_t ns, const char *lie, struct runtime_ask *a)
{
	struct runtime_asked of = {.charged_ns = ns};
	struct runtime_ask *const asks[] = {a};
	int r;

	snprintf(word, sizeof(word), "%s", lie);
	assert_int_equal(runtime_process_memory_open(live.maps->id, &of.memory), 0);
	r = runtime_ask_names(&of, (uintptr_t)word, asks, 1);
	runtime_process_memory_close(of.memory);
	return r;
}

static int ask_learn(uint64_t ns, const char *lie, struct runtime_answers *answers)
{
	struct runtime_asked of = {.charged_ns = ns};
	struct buf look = {0};
	int r;

	*answers = (struct runtime_answers){0};
	snprintf(word, sizeof(word), "%s", lie);
	assert_int_equal(runtime_look_write(live.maps, live.indexes, &look), 1);
	assert_int_equal(runtime_process_memory_open(live.maps->id, &of.memory), 0);
	r = runtime_ask_learn(&of, &look, 0, (uintptr_t)word, answers);
	runtime_process_memory_close(of.memory);
	buf_done(&look);
	return r;
}

static void no_lie_about_runtimes_is_taken(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(learn_lies); i++) {
		struct runtime_answers answers;

		if (ask_learn(100 + i, learn_lies[i].name, &answers) != -EBADMSG)
			fail_msg("%s: the answer was taken", learn_lies[i].name);
		runtime_answers_done(&answers);
	}
}

static void no_lie_about_names_is_taken(void **state)
{
	(void)state;
	for (size_t i = 0; i + 1 < ARRAY_SIZE(name_lies); i++) {
		struct runtime_ask a = frame_of("x", 1);

		if (ask_names(100 + i, name_lies[i].name, &a) != -EBADMSG)
			fail_msg("%s: the answer was taken", name_lies[i].name);
		assert_int_equal(a.names.n, 0);
	}
}

/* A child that lies within the rules names frames of its own namespace, and of no other. */
static void a_lie_stays_in_its_namespace(void **state)
{
	struct runtime_process *p;
	struct runtime_ask a = frame_of("x", 1);

	(void)state;
	assert_int_equal(ask_names(1, "invented", &a), 0);
	assert_string_equal(a.names.items[0].name, "in?v");
	assert_string_equal(a.names.items[0].file, "ent");
	runtime_names_done(&a.names);
	live.maps->charged_ns = 2;
	p = learn_again(NULL, 0);
	assert_named(p, "x", "1.0.x");
	runtime_process_unref(p);
}

static void a_token_that_is_not_known_has_no_names(void **state)
{
	struct runtime_ask a = frame_of("x", 1);

	(void)state;
	assert_int_equal(ask_names(1, "", &a), -ENOKEY);
	assert_int_equal(a.names.n, 0);
}

static void a_look_has_a_limit(void **state)
{
	enum { N = LOOK_BYTES_MAX / 64 };
	struct mapping *items = xcalloc(N, sizeof(*items));
	struct elf_index **none = xcalloc(N, sizeof(*none));
	struct mappings maps = {.items = items, .n = N};
	struct buf look = {0};
	char path[300];

	(void)state;
	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	for (size_t i = 0; i < N; i++)
		items[i].path = path;
	assert_int_equal(runtime_look_write(&maps, none, &look), -E2BIG);
	buf_done(&look);
	maps.n = 4;
	assert_int_equal(runtime_look_write(&maps, none, &look), 0);
	buf_done(&look);
	free(items);
	free(none);
}

static void long_names_are_cut(void **state)
{
	enum { N = 100000 };
	char *text = xcalloc(1, N + 1);
	struct runtime_process *p = learn_again(NULL, 0);
	struct runtime_ask a = frame_of(text, 1);

	(void)state;
	memset(text, 'x', N);
	a.frame.type = WHOLE;
	assert_int_equal(live_resolve(&live, p, &a, 1), 0);
	assert_int_equal(a.error, 0);
	assert_int_equal(strlen(a.names.items[0].name), WIRE_TEXT_MAX);
	runtime_names_done(&a.names);
	runtime_process_unref(p);
	free(text);
}

static void a_look_is_checked(void **state)
{
	struct read_look l;
	struct buf look = {0};

	(void)state;
	assert_int_equal(runtime_look_write(live.maps, live.indexes, &look), 1);
	assert_int_equal(runtime_look_read(xmemdup(look.data, look.len), look.len, &l), 0);
	assert_int_equal(l.maps.n, live.maps->n);
	for (size_t i = 0; i < l.maps.n; i++) {
		assert_int_equal(l.maps.items[i].start, live.maps->items[i].start);
		assert_string_equal(l.maps.items[i].path, live.maps->items[i].path);
		assert_int_equal(!l.indexes[i], !live.indexes[i]);
	}
	runtime_look_done(&l);
	/* it is never read beyond its end */
	for (size_t n = 0; n < look.len; n += n < 512 ? 1 : 97)
		assert_int_equal(runtime_look_read(xmemdup(look.data, n + 1), n, &l), -EBADMSG);
	buf_done(&look);
}

int main(int argc, char **argv)
{
#define ASK_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		ASK_TEST(a_child_learns_and_names),
		ASK_TEST(a_new_child_learns_what_the_old_one_knew),
		ASK_TEST(a_child_forgets_and_learns_again),
		ASK_TEST(names_come_back_beside_many_processes),
		ASK_TEST(who_cannot_be_learnt_now_stays),
		ASK_TEST(who_can_be_learnt_later_has_names_later),
		ASK_TEST(a_file_that_is_parsed_again_gives_names_again),
		ASK_TEST(ranges_are_checked),
		ASK_TEST(what_the_child_drops_is_counted),
		ASK_TEST(many_frames_are_named),
		ASK_TEST(a_loss_stops_its_namespace_only),
		ASK_TEST(no_lie_about_runtimes_is_taken),
		ASK_TEST(no_lie_about_names_is_taken),
		ASK_TEST(a_lie_stays_in_its_namespace),
		ASK_TEST(a_token_that_is_not_known_has_no_names),
		ASK_TEST(a_look_has_a_limit),
		ASK_TEST(long_names_are_cut),
		ASK_TEST(a_look_is_checked),
	};

	runtime_table = table;
	if (argc > 1 && streq(argv[1], VERB))
		return testreader_main(VERB, answer);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
