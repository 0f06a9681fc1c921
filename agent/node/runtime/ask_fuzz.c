/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child that learns runtimes and names frames, under an attacker's control, answers with any
 * messages. The agent may take only results of rows that run in a child, with data of their own
 * size, and only names that are clean, for the frames that it has asked for.
 * Fuzzes: node/runtime/ask.c
 */
#include "lib/base/fuzzinput.h"
#include "node/runtime/ask.c"

#define ASKS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Takes the next message of the input: its kind, its size, and its bytes. */
static size_t next_message(char *ret)
{
	struct reader_head head = {.sequence = 1, .what = take() % 6, .n = take()};
	size_t n = (size_t)take() << 3;

	n |= take() % 8;
	n = MIN(n, in.n);
	memcpy(ret, &head, sizeof(head));
	if (n)
		memcpy(ret + sizeof(head), in.data, n);
	in.data += n;
	in.n -= n;
	return sizeof(head) + n;
}

static int take_all(int (*take_one)(void *arg, const void *message, size_t n), void *arg)
{
	static _Alignas(8) char message[READER_MESSAGE_MAX];
	int r = 0;

	while (r == 0 && in.n) {
		size_t bytes = next_message(message);

		r = take_one(arg, message, bytes);
	}
	return r;
}

static void check_learnt(void)
{
	struct runtime_answers answers = {0};
	struct learning l = {.answers = &answers, .last = PF_RUNTIME_NONE};

	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++)
		answers.errors[k] = -ENOENT;
	(void)take_all(take_learning, &l);
	for (unsigned k = 0; k < _PF_RUNTIME_MAX; k++) {
		const struct runtime_ops *ops = runtime_ops((enum pf_runtime_kind)k);
		const struct runtime_learnt *x = &answers.learnt[k];

		check(answers.errors[k] <= 0 && answers.errors[k] > -4096);
		check(answers.errors[k] || (ops && !ops->in_agent));
		check(!answers.errors[k] || (!x->data && !x->ranges));
		check(x->n_ranges <= RUNTIME_RANGES_MAX && !x->data == !x->data_bytes);
		check(!x->data || x->data_bytes == data_bytes[k]);
	}
	runtime_answers_done(&answers);
}

static void check_text(const char *s)
{
	_cleanup_free_ char *clean = elf_text_clean(s);

	check(streq(s, clean));
}

static void check_names(void)
{
	struct runtime_ask items[ASKS] = {
		{.kind = PF_RUNTIME_PYTHON}, {.kind = PF_RUNTIME_JVM}, {.kind = PF_RUNTIME_LUA}};
	struct runtime_ask *const asks[ASKS] = {&items[0], &items[1], &items[2]};
	struct naming x = {.asks = asks, .n = ASKS};
	int r = take_all(take_naming, &x);

	check(x.at <= ASKS && x.bytes <= RUNTIME_NAMES_BYTES + 2 * WIRE_TEXT_MAX + 64);
	for (size_t i = 0; i < ASKS; i++) {
		const struct runtime_names *names = &items[i].names;

		check(names->n <= RUNTIME_NAMES_MAX);
		check(r <= 0 || x.unknown || !items[i].error || !names->n);
		check(r <= 0 || !names->n || is_kind_of(&items[i], (uint8_t)names->kind));
		for (size_t k = 0; k < names->n; k++) {
			check_text(names->items[k].name);
			if (names->items[k].file)
				check_text(names->items[k].file);
		}
		runtime_names_done(&items[i].names);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	in.data = data;
	in.n = n;
	if (take() % 2)
		check_learnt();
	else
		check_names();
	return 0;
}
