// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the walk over Python's frames, and the checks before it, in made-up processes of every
 * version. An activation is one running call of the evaluation loop; it has its own native frame.
 */
#include <stdlib.h>

#include "node/runtime/python/testpythonwalk.h"

#include "node/runtime/python/testpythonimage.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define FOR_MINORS(minor, first, last)                                                             \
	for (unsigned minor = (first); minor <= (last) && make(minor); minor++)

static bool make(unsigned minor)
{
	image_make(minor);
	assert_int_equal(image_check(), 0);
	image.kernel.eval = LOOP_AT;
	return true;
}

static void activation(uint64_t sp, uint64_t caller_sp)
{
	host_activation(&image.kernel, LOOP_AT + 0x1000, sp, caller_sp);
}

/* Walks through the two activations. In 3.10 and earlier, main has a third one. */
static void walk(void)
{
	host_begin(THREAD_POINTER);
	activation(INNER, INNER_CALLER);
	activation(OUTER, OUTER_CALLER);
	if (image.layout.minor <= 10)
		activation(OUTER_CALLER, OUTER_CALLER + 0x100);
}

/*
 * Returns a letter for each frame of the walk, leaf first: 'n' native, '!' trouble, else the first
 * letter of the function.
 */
static const char *letters(void)
{
	static char text[PF_MAX_USER_FRAMES + 1];
	uint32_t k = 0;

	for (; host_frame(k).kind; k++) {
		struct host_frame f = host_frame(k);
		uint64_t code = PF_PYTHON_ADDRESS(f.a), string = 0, text_at;

		if (f.kind != PF_FRAME_RUNTIME || f.type == PF_TYPE_TROUBLE) {
			text[k] = f.kind == PF_FRAME_RUNTIME ? '!' : 'n';
			continue;
		}
		assert_true(image_read(code + (image.layout.code_qualname
						       ? image.layout.code_qualname
						       : image.layout.kernel.code_name),
				       &string, 8));
		text_at = string + image.layout.string_ascii;
		assert_true(image_read(text_at, &text[k], 1));
	}
	text[k] = '\0';
	return text;
}

static void assert_trouble(uint32_t frame, uint32_t trouble, uint64_t address)
{
	struct host_frame f = host_frame(frame);

	assert_int_equal(f.kind, PF_FRAME_RUNTIME);
	assert_int_equal(f.type, PF_TYPE_TROUBLE);
	assert_int_equal(f.a, trouble);
	assert_int_equal(f.b, address);
}

/* ---- the walk ---- */

static void each_activation_has_its_frames(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		walk();
		assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
	}
}

static void words_say_which_code_and_where(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		walk();
		assert_int_equal(host_frame(1).a, image_word(image.code_g));
		/* the frame has not begun: unit -1 */
		assert_int_equal(host_frame(1).b, image.globals);
		assert_int_equal(host_frame(3).b, image.globals | 3ull << 48);
		assert_int_not_equal(PF_PYTHON_HIGH(host_frame(1).a),
				     PF_PYTHON_HIGH(host_frame(3).a));
	}
}

static void expect_just_entered(unsigned minor)
{
	host_begin(THREAD_POINTER);
	image.kernel.outside[0].end = 0x40;
	host_activation(&image.kernel, LOOP_AT + 0x30, STACK, INNER);
	activation(INNER, INNER_CALLER);
	activation(OUTER, OUTER_CALLER);
	assert_string_equal(letters(), minor <= 10 ? "nnTnf" : "nnTnfm");
}

/*
 * The activation's frame is not the frame of the thread yet, or not any more. The activation must
 * not get the frame of its caller.
 */
static void an_activation_that_is_just_entered_has_none(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		const struct pf_python *k = &image.layout.kernel;

		expect_just_entered(minor);
		/*
		 * The activation must not get a frame of another interpreter, either, in which this
		 * thread runs no code now.
		 */
		put_u64(RUNTIME_AT + image.layout.runtime_interpreters, OTHER_AT);
		put_u64(OTHER_AT + k->interpreter_next, INTERPRETER_AT);
		put_thread(OTHER_AT, THREAD_POINTER, 0);
		expect_just_entered(minor);
	}
}

/*
 * The walk did not recognise code of the loop. Then the frames of this code are shown with the next
 * activation.
 */
static void frames_of_an_unseen_activation_are_not_lost(void **state)
{
	(void)state;
	FOR_MINORS(minor, 11, 15)
	{
		host_begin(THREAD_POINTER);
		activation(OUTER, OUTER_CALLER);
		assert_string_equal(letters(), "nTfm");
	}
}

static void another_thread_has_the_gil(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		uint64_t other = put_thread(INTERPRETER_AT, 0x7f0000009999, image.thread);

		image_holder(other);
		walk();
		assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
	}
}

/*
 * Up to 3.11, a thread that starts another one makes the state of the new thread, which has the
 * starting thread's number until the new one runs. This state is the first in the list, and has no
 * frames.
 */
static void a_thread_that_starts_another_keeps_its_frames(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 11)
	{
		uint64_t made = put_thread(INTERPRETER_AT, THREAD_POINTER, image.thread);

		if (minor == 11) /* a new thread state of 3.11 also has its root_cframe */
			put_u64(made + image.kernel.thread_frame, put_cframe(made + 200, 0, 0));
		image_holder(0);
		walk();
		assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
	}
}

static void whoever_has_the_gil_is_found_at_once(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		unsigned by_holder;

		for (uint64_t i = 0, last = image.thread; i < 50; i++)
			last = put_thread(INTERPRETER_AT, 0x7f0000002000 + i, last);
		walk();
		by_holder = host_reads;
		image_holder(0);
		walk();
		assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
		assert_true(host_reads >= by_holder + 50);
	}
}

static void a_thread_that_python_does_not_know(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		host_begin(THREAD_POINTER + 8);
		activation(INNER, INNER_CALLER);
		activation(OUTER, OUTER_CALLER);
		assert_string_equal(letters(), "n!n"); /* the trouble is shown once */
		assert_trouble(1, PF_TROUBLE_THREAD, 0);
	}
}

/* The list of thread states is a circle, so the search must stop at its limit. */
static void a_search_for_the_thread_ends(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		image_holder(0);
		put_u64(image.thread + image.kernel.thread_next, image.thread);
		host_begin(THREAD_POINTER + 8);
		activation(INNER, INNER_CALLER);
		assert_trouble(1, PF_TROUBLE_LONG, 0);
		assert_true(host_reads < PF_PYTHON_LOOKS_MAX + 10);
	}
}

/* Makes OTHER_AT the first of two interpreters. */
static void add_interpreter(void)
{
	put_u64(RUNTIME_AT + image.layout.runtime_interpreters, OTHER_AT);
	put_u64(OTHER_AT + image.kernel.interpreter_next, INTERPRETER_AT);
}

/*
 * Returns the frame at which the frames of a thread state end: since 3.15, one that is in the state
 * itself.
 */
static uint64_t end_of_frames(void)
{
	return image.layout.minor >= 15 ? put_shim(image_alloc(128), 0) : 0;
}

static uint64_t put_idle(uint64_t next)
{
	uint64_t state = put_thread(OTHER_AT, THREAD_POINTER, next);

	put_u64(state + image.kernel.thread_frame, end_of_frames());
	return state;
}

/*
 * g runs in another interpreter, in the same thread. The GIL's holder may be either thread state.
 */
static void run_g_in(uint64_t other)
{
	const struct pf_python *k = &image.layout.kernel;
	bool cframes = pf_python_has_cframes(k);

	add_interpreter();
	/*
	 * g is in the thread state of its own interpreter, f and main are in the thread state of
	 * the other one
	 */
	put_u64(other + k->thread_frame, cframes ? INNER + 0x20 : image.g);
	put_u64(image.thread + k->thread_frame, cframes ? OUTER + 0x20 : image.f);
	if (k->pieces >= PF_PYTHON_CFRAME)
		put_shim(INNER + 0x40, end_of_frames());
	else
		put_u64(image.g + k->frame_back, 0);
	if (cframes)
		put_cframe(INNER + 0x20, image.g, 0);
}

static void one_thread_in_two_interpreters(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		uint64_t other = put_thread(OTHER_AT, THREAD_POINTER, 0);

		run_g_in(other);
		image_holder(other);
		walk();
		assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
		if (minor <= 10)
			/*
			 * all interpreters share the GIL, so its holder is the thread state that
			 * runs
			 */
			continue;
		image_holder(image.thread);
		walk();
		assert_string_equal(letters(), "nTnfm");
	}
}

/* The other thread states of the thread are idle. Each one is tried, wherever it is in the list. */
static void one_thread_in_many_interpreters(void **state)
{
	(void)state;
	for (unsigned place = 0; place < PF_PYTHON_TRIES; place++)
		FOR_MINORS(minor, 8, 15)
		{
			uint64_t at = 0, gs = 0;

			for (unsigned i = 0; i < PF_PYTHON_TRIES; i++) {
				at = put_idle(at);
				if (i == place)
					gs = at;
			}
			run_g_in(gs);
			image_holder(gs);
			walk();
			assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
			image_holder(minor <= 10 ? gs : image.thread);
			walk();
			assert_string_equal(letters(), minor <= 10 ? "nTnfnm" : "nTnfm");
		}
}

/*
 * The outermost activation is of a third interpreter, whose thread state comes after that of g in
 * the list. The walk skips the thread state of g, because it has already shown its frames.
 */
static void what_was_told_is_passed_over(void **state)
{
	(void)state;
	FOR_MINORS(minor, 11, 15)
	{
		const struct pf_python *k = &image.kernel;
		uint64_t around = put_idle(0), gs = put_idle(around), at = OUTER_CALLER;
		uint64_t frame = put_frame(image.code_g, 0, minor == 11, 0);

		run_g_in(gs);
		if (k->pieces >= PF_PYTHON_CFRAME)
			put_u64(frame + k->frame_back, put_shim(at + 0x40, end_of_frames()));
		put_u64(around + k->thread_frame,
			k->pieces == PF_PYTHON_SHIM ? frame : put_cframe(at + 0x20, frame, 0));
		image_holder(gs);
		walk();
		activation(at, at + 0x100);
		assert_string_equal(letters(), "nTnfmnT");
	}
}

static void walk_with_one_just_entered(void)
{
	host_begin(THREAD_POINTER);
	activation(STACK, INNER);
	activation(INNER, INNER_CALLER);
	activation(OUTER, OUTER_CALLER);
}

/*
 * The activation belongs to no thread state yet. After this activation, the walk continues in the
 * thread state where it was.
 */
static void an_activation_just_entered_loses_no_others(void **state)
{
	(void)state;
	FOR_MINORS(minor, 11, 15)
	{
		uint64_t other = 0;

		add_interpreter();
		for (unsigned n = 0; n <= PF_PYTHON_TRIES; n++) {
			walk_with_one_just_entered();
			assert_string_equal(letters(), "nnTnfm");
			if (n < PF_PYTHON_TRIES)
				other = put_idle(other);
		}
		put_idle(other);
		walk_with_one_just_entered();
		assert_string_equal(letters(), "n!nTnfm");
	}
}

/*
 * A frame of another interpreter's thread state is not in memory. The walk continues with frames of
 * the current thread state.
 */
static void what_is_not_in_memory_of_another_interpreter(void **state)
{
	(void)state;
	FOR_MINORS(minor, 11, 15)
	{
		uint64_t other = put_idle(0), start = 0xdead000;
		bool cframes = pf_python_has_cframes(&image.kernel);

		add_interpreter();
		put_u64(other + image.kernel.thread_frame,
			cframes ? put_cframe(INNER - 0x20, start, 0) : start);
		walk_with_one_just_entered();
		assert_string_equal(letters(), "n!nTnfm");
		assert_trouble(1, PF_TROUBLE_READ, start);
	}
}

/* Walks through all activations, and one more that has no frame. */
static const char *letters_with_one_more(void)
{
	walk();
	activation(OUTER_CALLER + 0x100, OUTER_CALLER + 0x200);
	return letters();
}

/*
 * The activation without a frame may belong to another interpreter, whose thread state was not
 * tried.
 */
static void a_search_for_another_interpreter_ends(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		const char *all = minor <= 10 ? "nTnfnmn" : "nTnfmn",
			   *cut = minor <= 10 ? "nTnfnmn!" : "nTnfmn!";
		uint64_t other = put_thread(OTHER_AT, THREAD_POINTER + 8, 0);

		add_interpreter();
		assert_string_equal(letters_with_one_more(), all);
		put_u64(other + image.kernel.thread_next, other);
		assert_string_equal(letters_with_one_more(), cut);
		assert_trouble(host.walk.n_frames - 1, PF_TROUBLE_LONG, 0);
		for (unsigned n = other = 0; n < PF_PYTHON_TRIES; n++)
			other = put_idle(other);
		assert_string_equal(letters_with_one_more(), all);
		put_idle(other);
		assert_string_equal(letters_with_one_more(), cut);
		assert_trouble(host.walk.n_frames - 1, PF_TROUBLE_LONG, 0);
	}
}

static void what_is_not_in_memory_is_said(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		put_u64(image.f + image.kernel.frame_back, 0xdead000);
		walk();
		/* the frame of main cannot be read */
		if (image.kernel.pieces == PF_PYTHON_SHIM || minor <= 10)
			assert_string_equal(letters(), minor <= 10 ? "nTnfn!" : "nTnf!");
		for (uint32_t i = 0; host_frame(i).kind; i++)
			if (host_frame(i).type == PF_TYPE_TROUBLE)
				assert_trouble(i, PF_TROUBLE_READ, 0xdead000);
	}
	FOR_MINORS(minor, 8, 15)
	{
		uint64_t frame_code = image.g + image.kernel.frame_code;

		/* the name of g's code object cannot be read: the walk continues */
		put_u64(image.code_g + image.kernel.code_name, 0xbeef000);
		walk();
		assert_string_equal(letters(), minor <= 10 ? "n!nfnm" : "n!nfm");
		assert_trouble(1, PF_TROUBLE_READ, 0xbeef000 + PF_PYTHON_HASH);
		put_u64(frame_code, 0xdead000); /* the code object cannot be read */
		walk();
		assert_string_equal(letters(), minor <= 10 ? "n!nfnm" : "n!nfm");
		assert_trouble(1, PF_TROUBLE_READ, 0xdead000 + image.kernel.code_counts);
	}
}

static void what_is_no_frame_is_damage(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		put_u64(image.g + image.kernel.frame_code, 0xffff880000000000);
		walk();
		assert_string_equal(letters(), minor <= 10 ? "n!nfnm" : "n!nfm");
		assert_trouble(1, PF_TROUBLE_DAMAGED, image.g);
	}
}

static void a_circle_of_frames_ends(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		put_u64(image.f + image.kernel.frame_back, image.f);
		walk();
		assert_true(host.walk.n_frames <= PF_MAX_USER_FRAMES);
		assert_true(host_reads < 2 * PF_STEPS);
	}
}

/* ---- a call that is just being made, in 3.11 and 3.12 ---- */

#define FRAME_WORDS 12 /* words of a frame, by the sizes of its code object */

static uint64_t put_code_sized(const char *name, uint32_t line)
{
	const struct pf_python *k = &image.layout.kernel;
	uint64_t code = put_code(name, line);

	put_u32(code + k->code_counts + k->size_first, FRAME_WORDS - k->size_words);
	return code;
}

static uint64_t put_stack_frame(uint64_t at, const char *name, int unit, uint64_t back)
{
	put_frame_at(at, put_code_sized(name, 70), unit, 0, back);
	return at;
}

/*
 * In the outer activation main calls f, and f calls h, which has not begun yet. previous: the
 * pointer of h's frame to its caller.
 */
static const char *call_of_h(uint64_t previous, uint64_t f_at)
{
	const struct pf_python *k = &image.layout.kernel;
	uint64_t h = put_stack_frame(f_at + 8 * FRAME_WORDS, "h", -1, previous);

	put_u64(image.thread + k->thread_frame, put_cframe(OUTER + 0x20, h, STACK + 0xe00));
	put_cframe(STACK + 0xe00, 0, 0); /* the first cframe of the thread, which has no caller */
	host_begin(THREAD_POINTER);
	activation(OUTER, OUTER_CALLER);
	return letters();
}

static void who_cannot_be_the_caller_of_a_call_just_made_is_not(void **state)
{
	(void)state;
	FOR_MINORS(minor, 11, 12)
	{
		const struct pf_python *k = &image.layout.kernel;
		uint64_t f_at = image_alloc(3 * 8 * FRAME_WORDS), generator;

		put_stack_frame(f_at, "f", 2, image.main);
		assert_string_equal(call_of_h(f_at, f_at), "nhfm");
		/*
		 * The memory has the pointer of an earlier call: main's frame does not end where
		 * h's begins.
		 */
		assert_string_equal(call_of_h(image.main, f_at), "n!");
		assert_trouble(1, PF_TROUBLE_DAMAGED, image.main);
		/* h has begun, so its pointer is valid, wherever its frame is */
		put_stack_frame(f_at + 8 * FRAME_WORDS, "h", 1, image.main);
		host_begin(THREAD_POINTER);
		activation(OUTER, OUTER_CALLER);
		assert_string_equal(letters(), "nhm");
		/*
		 * x is a generator, whose frame is elsewhere. So h's frame must begin where the
		 * frame of x's caller f ends.
		 */
		generator = image_alloc(256);
		put_stack_frame(generator, "x", 1, f_at);
		put(generator + k->frame_owner, &(uint8_t){1}, 1);
		assert_string_equal(call_of_h(generator, f_at), "nhxfm");
	}
}

/* The thread already points to its cframe, but the cframe still has an old value. */
static void an_activation_that_says_nothing_yet_is_not_believed(void **state)
{
	(void)state;
	FOR_MINORS(minor, 11, 11)
	{
		const struct pf_python *k = &image.layout.kernel;

		/* The frames are right: f, which the outer activation runs, calls g. */
		host_begin(THREAD_POINTER);
		host_activation(&image.kernel, LOOP_AT + 0x60, INNER, INNER_CALLER);
		activation(OUTER, OUTER_CALLER);
		assert_string_equal(letters(), "nTnfm");
		put_u64(image.g + k->frame_back, image.main);
		host_begin(THREAD_POINTER);
		host_activation(&image.kernel, LOOP_AT + 0x60, INNER, INNER_CALLER);
		activation(OUTER, OUTER_CALLER);
		assert_string_equal(letters(), "n!n");
		assert_trouble(1, PF_TROUBLE_DAMAGED, image.g);
	}
}

/* ---- the checks of the layout ---- */

static void a_live_process_is_as_its_layout(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		assert_int_equal(image.layout.minor, minor);
		assert_int_equal(image.kernel.thread_id, minor <= 10   ? 176
							 : minor == 12 ? 136
								       : 152);
		assert_int_equal(image.kernel.interpreters,
				 RUNTIME_AT + image.layout.runtime_interpreters);
		assert_int_equal(image.kernel.holder,
				 minor <= 11 ? RUNTIME_AT + image.layout.runtime_holder
					     : GIL_AT + 8);
	}
}

static void it_is_not_that_far_yet(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		put_u64(INTERPRETER_AT + image.kernel.interpreter_threads, 0);
		assert_int_equal(image_check(), -EAGAIN);
		put_u64(image.kernel.interpreters, 0);
		assert_int_equal(image_check(), -EAGAIN);
	}
}

static void other_structures_are_found_out(void **state)
{
	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		put_u64(image.thread + image.kernel.thread_interpreter, INTERPRETER_AT + 8);
		assert_int_equal(image_check(), -EBADMSG);
		make(minor);
		put_u64(image.g + image.kernel.frame_code, image.globals); /* not a code object */
		assert_int_equal(image_check(), -EBADMSG);
		make(minor);
		put_u64(INTERPRETER_AT + image.kernel.interpreter_next, INTERPRETER_AT);
		assert_int_equal(image_check(), -EBADMSG);
	}
}

/* The newest interpreter is the first of the list, and the main one is the last. */
static void it_may_have_more_interpreters_than_are_looked_at(void **state)
{
	const uint64_t first = HEAP + 0xa000,
		       step = 56; /* the interpreters overlap, but not in the parts that are read */

	(void)state;
	FOR_MINORS(minor, 8, 15)
	{
		uint64_t holder = image.kernel.holder;

		for (unsigned i = 0; i < 100; i++) {
			uint64_t at = first + i * step;

			put_u64(at + image.layout.kernel.interpreter_next,
				i < 99 ? at + step : INTERPRETER_AT);
			put_u64(at + image.layout.kernel.interpreter_threads, 0);
		}
		put_u64(RUNTIME_AT + image.layout.runtime_interpreters, first);
		assert_int_equal(image_check(), 0);
		assert_int_equal(image.kernel.holder, holder);
		/* The main interpreter is checked. */
		put_u64(image.thread + image.kernel.thread_interpreter, first);
		assert_int_equal(image_check(), -EBADMSG);
	}
}

/* If the version is not known, only a frame proves the offsets. */
static void a_later_version_needs_proof(void **state)
{
	(void)state;
	make(15);
	assert_false(image.layout.checked);
	put_u64(image.thread + image.kernel.thread_frame, 0);
	assert_int_equal(image_check(), -EAGAIN);
	make(14);
	put_u64(image.thread + image.kernel.thread_frame, 0);
	assert_int_equal(image_check(), 0);
}

static void versions_that_are_not_known(void **state)
{
	static const uint32_t hexversions[] = {0x02070000, 0x03060000, 0x03070000, 0x04080000, 0};
	struct python_layout l;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hexversions); i++)
		assert_int_equal(runtime_python_layout_of(hexversions[i], &l), -ENOENT);
}

static void offsets_that_a_process_tells(void **state)
{
	uint64_t w[OFFSETS_WORDS];
	struct python_layout l;

	(void)state;
	for (unsigned minor = 13; minor <= 15; minor++) {
		image_offsets(minor, w);
		assert_int_equal(runtime_python_layout_read((uint8_t *)w, sizeof(w), &l), 0);
		assert_int_equal(l.runtime_interpreters, minor == 13 ? 632 : 808);
		assert_int_equal(l.kernel.interpreter_next, minor == 13 ? 7264 : 7272);
		assert_int_equal(l.kernel.interpreter_threads, 7344);
		assert_int_equal(l.interpreter_gil, 16);
		assert_int_equal(l.gil_holder, 8);
		assert_int_equal(l.kernel.thread_frame, 72);
		assert_int_equal(l.kernel.frame_last, minor == 13 ? 70 : 74);
		assert_int_equal(l.kernel.frame_instruction, 56);
		assert_int_equal(l.code_qualname, 128);
		/* co_argcount, at 52, is the next member */
		assert_int_equal(l.kernel.code_counts, 48);
		assert_int_equal(l.kernel.code_name, 120);
		assert_int_equal(l.kernel.code_instructions, minor == 13 ? 200 : 208);
	}
	w[2] = 1;
	assert_int_equal(runtime_python_layout_read((uint8_t *)w, sizeof(w), &l), -ENOTSUP);
	w[2] = 0;
	w[0]++;
	assert_int_equal(runtime_python_layout_read((uint8_t *)w, sizeof(w), &l), -EBADMSG);
	assert_int_equal(runtime_python_layout_read((uint8_t *)w, 100, &l), -EBADMSG);
}

/*
 * Any word may be wrong. Then the offsets are refused, or the word has no effect. The search never
 * reads outside of the words.
 */
static void damaged_offsets(void **state)
{
	uint64_t w[OFFSETS_WORDS];
	struct python_layout l;

	(void)state;
	for (unsigned minor = 13; minor <= 15; minor++)
		for (size_t i = 0; i < OFFSETS_WORDS; i++) {
			image_offsets(minor, w);
			w[i] = UINT64_MAX;
			if (runtime_python_layout_read((uint8_t *)w, sizeof(w), &l) == 0)
				assert_true(l.kernel.thread_bytes <= PF_PYTHON_READ &&
					    l.kernel.frame_bytes <= PF_PYTHON_READ);
		}
}

/* ---- machine code ---- */

static void a_version_in_machine_code(void **state)
{
	/* lea n(%rip),%rdx; mov $n,%edi; ret */
	uint8_t relative[] = {0x48, 0x8d, 0x15, 0, 0, 0, 0, 0xc3};
	uint8_t absolute[] = {0xbf, 0, 0, 0, 0, 0xc3};
	uint64_t text = FREE_AT + 0x200, at = FREE_AT + 0x100;
	uint32_t distance = (uint32_t)(text - (at + 7)), address = (uint32_t)text;
	char version[48];

	(void)state;
	make(8);
	put(text, "3.8.18 (default, Dec  1 2026)", 30);
	memcpy(relative + 3, &distance, 4);
	put(at, relative, sizeof(relative));
	assert_int_equal(runtime_python_code_version(&image.memory, at, sizeof(relative), version),
			 0);
	assert_string_equal(version, "3.8.18");
	memcpy(absolute + 1, &address, 4);
	put(at, absolute, sizeof(absolute));
	assert_int_equal(runtime_python_code_version(&image.memory, at, sizeof(absolute), version),
			 0);
	assert_string_equal(version, "3.8.18");
	put(text, "no version", 11);
	assert_int_equal(runtime_python_code_version(&image.memory, at, sizeof(absolute), version),
			 -ENOENT);
	assert_int_equal(runtime_python_code_version(&image.memory, 0, 64, version), -EFAULT);
}

static void where_the_frame_is_not_the_threads(void **state)
{
	static const uint8_t code[] = {
		0x55,			      /* 0: push %rbp */
		0x49, 0x89, 0x5c, 0x24, 0x18, /* 1: mov %rbx,0x18(%r12) */
		0x90,			      /* 6: nop */
		0x49, 0x89, 0x44, 0x24, 0x18, /* 7: mov %rax,0x18(%r12) */
		0xe8, 0,    0,	  0,	0,    /* 12: call */
		0xeb, 1,		      /* 17: jmp 20 */
		0x90,			      /* 19 */
		0x5d, 0xc3,		      /* 20: pop %rbp; ret */
		0x90,
	};
	struct pf_python k = {0};

	(void)state;
	runtime_python_code_outside(code, sizeof(code), 0x18, &k);
	assert_int_equal(k.outside[0].start, 0);
	assert_int_equal(k.outside[0].end, 6);
	assert_int_equal(k.outside[1].start, 12);
	assert_int_equal(k.outside[1].end, 19);
	assert_int_equal(k.outside[2].start, 20);
	assert_int_equal(k.outside[2].end, 22);
	runtime_python_code_outside(code, sizeof(code), 0x20, &k);
	assert_int_equal(k.outside[0].end, 0);
}

/*
 * The hot part is: je cold; ret. The cold part is nops and a jump back. After it comes the code of
 * another function.
 */
static void a_cold_part_ends_where_jumps_lead_elsewhere(void **state)
{
	uint64_t cold = FREE_AT, hot = FREE_AT + 0x4000, start, end;
	uint8_t code[] = {0x0f, 0x84, 0, 0, 0, 0, 0xc3};
	uint8_t back[] = {0x90, 0x90, 0xe9, 0, 0, 0, 0};
	uint32_t to_cold = (uint32_t)(cold - (hot + 6)), to_hot = (uint32_t)(hot + 6 - (cold + 7));

	(void)state;
	make(14);
	memcpy(code + 2, &to_cold, 4);
	memcpy(back + 3, &to_hot, 4);
	for (uint64_t at = cold; at < hot; at++)
		put(at, "\x90", 1);
	put(cold, back, sizeof(back));
	put(hot, code, sizeof(code));
	assert_true(runtime_python_code_cold(&image.memory, code, sizeof(code), hot,
					     HEAP + HEAP_BYTES, &start, &end));
	assert_int_equal(start, cold);
	assert_int_equal(end, cold + 7);
	code[1] = 0x05; /* 0f 05 is syscall, which is not a jump */
	assert_false(runtime_python_code_cold(&image.memory, code, sizeof(code), hot,
					      HEAP + HEAP_BYTES, &start, &end));
}

/* For a group of tests: the walk looks up mappings, as on a kernel that allows that. */
static int see_mappings(void **state)
{
	(void)state;
	pf_config.sees_mappings = true;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_activation_has_its_frames),
		cmocka_unit_test(words_say_which_code_and_where),
		cmocka_unit_test(an_activation_that_is_just_entered_has_none),
		cmocka_unit_test(frames_of_an_unseen_activation_are_not_lost),
		cmocka_unit_test(another_thread_has_the_gil),
		cmocka_unit_test(a_thread_that_starts_another_keeps_its_frames),
		cmocka_unit_test(whoever_has_the_gil_is_found_at_once),
		cmocka_unit_test(a_thread_that_python_does_not_know),
		cmocka_unit_test(a_search_for_the_thread_ends),
		cmocka_unit_test(one_thread_in_two_interpreters),
		cmocka_unit_test(one_thread_in_many_interpreters),
		cmocka_unit_test(what_was_told_is_passed_over),
		cmocka_unit_test(an_activation_just_entered_loses_no_others),
		cmocka_unit_test(what_is_not_in_memory_of_another_interpreter),
		cmocka_unit_test(a_search_for_another_interpreter_ends),
		cmocka_unit_test(what_is_not_in_memory_is_said),
		cmocka_unit_test(what_is_no_frame_is_damage),
		cmocka_unit_test(a_circle_of_frames_ends),
		cmocka_unit_test(who_cannot_be_the_caller_of_a_call_just_made_is_not),
		cmocka_unit_test(an_activation_that_says_nothing_yet_is_not_believed),
		cmocka_unit_test(a_live_process_is_as_its_layout),
		cmocka_unit_test(it_is_not_that_far_yet),
		cmocka_unit_test(other_structures_are_found_out),
		cmocka_unit_test(it_may_have_more_interpreters_than_are_looked_at),
		cmocka_unit_test(a_later_version_needs_proof),
		cmocka_unit_test(versions_that_are_not_known),
		cmocka_unit_test(offsets_that_a_process_tells),
		cmocka_unit_test(damaged_offsets),
		cmocka_unit_test(a_version_in_machine_code),
		cmocka_unit_test(where_the_frame_is_not_the_threads),
		cmocka_unit_test(a_cold_part_ends_where_jumps_lead_elsewhere),
	};

	return cmocka_run_group_tests_name("native frames of no file", tests, NULL, NULL) +
	       cmocka_run_group_tests_name("native frames of files", tests, see_mappings, NULL);
}
