// SPDX-License-Identifier: Apache-2.0
/*
 * main() of a fuzz target that is built without libFuzzer. It runs the target once with each input
 * of its corpus, in any kind of build. The corpus is an ar(5) archive, packed by zstd. Arguments
 * replace the corpus: other archives, packed or not, or single inputs.
 */
#include <ar.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
#include <zstd.h>

#include "lib/base/base.h"

#define MAX_CORPUS_BYTES (64u << 20)
#define INPUT_CPU_S	 60 /* limit of CPU time for one input, even in the slowest build */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max);
/* If a sanitizer reports an error, it ends the process itself, and calls fn before. */
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static const char *corpus, *name = "";
static unsigned n_passed;

/* The mutator of a target needs this function to link. The function changes nothing. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t max)
{
	(void)data;
	(void)max;
	return n;
}

static void tell_failed(void)
{
	char text[600];
	int n = snprintf(text, sizeof(text),
			 "FAIL: input %.60s of %.400s\n%u passed, 1 failed, 0 skipped\n", name,
			 corpus, n_passed);

	(void)!write(STDOUT_FILENO, text, (size_t)n);
}

static void on_signal(int signo)
{
	tell_failed();
	signal(signo, SIG_DFL);
	raise(signo);
}

/*
 * Runs the target with a copy of the input. No bytes lie behind the copy, so a sanitizer sees each
 * read beyond its end.
 */
static void run(const char *data, size_t n)
{
	const struct itimerval limit = {.it_value.tv_sec = INPUT_CPU_S};
	uint8_t *copy = xmalloc(n ? n : 1);

	memcpy(copy, data, n);
	setitimer(ITIMER_PROF, &limit, NULL);
	LLVMFuzzerTestOneInput(copy, n);
	free(copy);
	n_passed++;
}

/* Reads the next member of an archive. Returns false if there is none. */
static bool take_member(const char **p, size_t *left, struct ar_hdr *ret_head,
			const char **ret_data, size_t *ret_n)
{
	uint64_t n;

	if (*left < sizeof(*ret_head))
		return false;
	memcpy(ret_head, *p, sizeof(*ret_head));
	ret_head->ar_name[strcspn(ret_head->ar_name, "/ ")] = '\0';
	ret_head->ar_size[strcspn(ret_head->ar_size, " ")] = '\0';
	if (memcmp(ret_head->ar_fmag, ARFMAG, 2) != 0 ||
	    str_to_u64(ret_head->ar_size, *left - sizeof(*ret_head), &n) < 0) {
		fprintf(stderr, "%s: damaged\n", corpus);
		exit(1);
	}
	*ret_data = *p + sizeof(*ret_head);
	*ret_n = n;
	n = MIN(sizeof(*ret_head) + n + (n & 1), *left);
	*p += n;
	*left -= n;
	return true;
}

/* If the text is packed, replaces it by the unpacked text. */
static void unpack(char **text, size_t *n)
{
	unsigned long long bytes = ZSTD_getFrameContentSize(*text, *n);
	char *plain;

	if (bytes == ZSTD_CONTENTSIZE_ERROR)
		return;
	bytes = MIN(bytes, MAX_CORPUS_BYTES);
	plain = xmalloc(bytes + 1);
	*n = ZSTD_decompress(plain, bytes, *text, *n);
	if (ZSTD_isError(*n)) {
		fprintf(stderr, "%s: %s\n", corpus, ZSTD_getErrorName(*n));
		exit(1);
	}
	free(*text);
	*text = plain;
}

static void replay(const char *path)
{
	_cleanup_free_ char *text = NULL;
	const char *p, *data;
	struct ar_hdr head;
	size_t left, n;
	int r = file_read(AT_FDCWD, path, MAX_CORPUS_BYTES, &text, &left);

	corpus = path;
	if (r == -ENOENT && streq(path, CORPUS ".zst")) {
		printf("skip: %s is not there yet\n0 passed, 0 failed, 1 skipped\n", path);
		exit(0);
	}
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(-r));
		exit(1);
	}
	unpack(&text, &left);
	if (left < SARMAG || memcmp(text, ARMAG, SARMAG) != 0) {
		run(text, left);
		return;
	}
	p = text + SARMAG;
	left -= SARMAG;
	for (name = head.ar_name; take_member(&p, &left, &head, &data, &n);)
		run(data, n);
	name = "";
}

int main(int argc, char **argv)
{
	static const int always[] = {SIGABRT, SIGILL, SIGTRAP, SIGPROF};
	static const int of_sanitizers[] = {SIGSEGV, SIGBUS, SIGFPE};

	for (size_t i = 0; i < ARRAY_SIZE(always); i++)
		signal(always[i], on_signal);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(tell_failed);
	for (size_t i = 0; i < ARRAY_SIZE(of_sanitizers) && !__sanitizer_set_death_callback; i++)
		signal(of_sanitizers[i], on_signal);
	if (argc < 2)
		replay(CORPUS ".zst");
	for (int i = 1; i < argc; i++)
		replay(argv[i]);
	printf("%u passed, 0 failed, 0 skipped\n", n_passed);
	return 0;
}
