/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base: memory, strings, growable buffers, errors, log, time and small files. All other modules use
 * it. It uses only libc, jansson, libyaml, PCRE2 and zlib.
 *
 * Conventions of the whole agent: functions return 0 or -errno. Outputs come last, are named
 * ret_... and stay untouched on failure. Library functions do not log. If a small allocation fails,
 * the program aborts. Data whose size comes from outside is kept in a struct buf with a maximum, or
 * has an explicit limit.
 */
#pragma once

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#define NSEC_PER_SEC   1000000000ULL
#define NSEC_PER_MSEC  1000000ULL
#define USEC_PER_SEC   1000000ULL
#define ARRAY_SIZE(a)  (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)      ((a) < (b) ? (a) : (b))
#define MAX(a, b)      ((a) > (b) ? (a) : (b))
#define _printf_(f, a) __attribute__((format(printf, f, a)))

/* ---- assertions ----------------------------------------------------------- */

/*
 * If the expression is false, prints it with its file and line and aborts, in every build. It
 * checks what the agent's own code promises to other code of the agent (its thread, its
 * references). Nothing that a pod, a file or the wire decides is asserted.
 */
#define assert_se(expression)                                                                      \
	(__builtin_expect(!!(expression), 1) ? (void)0                                             \
					     : assert_failed(#expression, __FILE__, __LINE__))
void assert_failed(const char *expression, const char *file, int line)
	__attribute__((noreturn, cold));

/*
 * A reference count; its first value is 1. Any thread may call both functions. They abort if the
 * count is 0, that is, if the object is freed already. ref_drop() returns whether the dropped
 * reference was the last one.
 */
static inline void ref_take(unsigned *n)
{
	assert_se(__atomic_fetch_add(n, 1, __ATOMIC_RELAXED) > 0);
}
static inline bool ref_drop(unsigned *n)
{
	unsigned before = __atomic_fetch_sub(n, 1, __ATOMIC_ACQ_REL);

	assert_se(before > 0);
	return before == 1;
}

/* ---- memory: abort on failure ------------------------------------------- */

/*
 * Prints a message and aborts. Also used after calls of libraries that fail only if memory runs out
 * (hashes of OpenSSL).
 */
void out_of_memory(void) __attribute__((noreturn));

void *xmalloc(size_t n_bytes);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n_bytes);
char *xstrdup(const char *s); /* NULL gives NULL */
char *xstrndup(const char *s, size_t n);
void *xmemdup(const void *p, size_t n_bytes);
char *xasprintf(const char *fmt, ...) _printf_(1, 2);

/* _cleanup_(f): calls f(&variable) when the variable goes out of scope. */
#define _cleanup_(f)	__attribute__((cleanup(f)))
#define _cleanup_free_	_cleanup_(freep)
#define _cleanup_close_ _cleanup_(closep)
#define _cleanup_json_	_cleanup_(json_decrefp_)
#define _cleanup_buf_	_cleanup_(buf_done)
void freep(void *p);  /* p is a T ** */
void closep(int *fd); /* does nothing if *fd is -1 */
void json_decrefp_(json_t **j);

#define TAKE_PTR(p)                                                                                \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int taken_ = (fd);                                                                 \
		(fd) = -1;                                                                         \
		taken_;                                                                            \
	})

/*
 * An array that grows: T *items; size_t n, cap. If the array is full, GROW doubles its capacity, so
 * that one more item fits. The caller checks its own limit before.
 */
#define GROW(items, n, cap)                                                                        \
	do {                                                                                       \
		if ((n) == (cap)) {                                                                \
			(cap) = (cap) ? (cap)*2 : 8;                                               \
			(items) = xrealloc((items), (cap) * sizeof(*(items)));                     \
		}                                                                                  \
	} while (0)

/* ---- buf: bytes that grow up to a maximum -------------------------------- */

/*
 * data is always NUL-terminated at data[len] (but data may be NULL while the buffer is empty). If
 * the data would become longer than max_bytes, the buffer becomes `failed`, keeps its content and
 * refuses every append. So a caller checks once, at the end. max_bytes 0 means 1 GiB. The same
 * happens if its budget refuses more memory. The caller of buf_init sets budget after it; what the
 * buffer has taken is not given back here.
 */
struct buf_budget {
	bool (*take)(struct buf_budget *b, size_t n_bytes);
};
/*
 * For other memory than buffers, which has n bytes now and had *taken of the budget so far: takes
 * what it has grown by, and sets *taken. b NULL: there is no limit. Returns 0 or -E2BIG.
 */
int buf_budget_grow(struct buf_budget *b, size_t n, size_t *taken);
struct buf {
	char *data;
	size_t len, cap, max_bytes;
	struct buf_budget *budget; /* NULL: none */
	bool failed;
};

void buf_init(struct buf *b, size_t max_bytes);
void buf_done(struct buf *b);
void buf_reset(struct buf *b);			     /* empties, keeps the memory, clears failed */
int buf_add(struct buf *b, const void *p, size_t n); /* 0 or -E2BIG */
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_put_utf8(struct buf *b, uint32_t c); /* c: at most 0x10ffff, no surrogate */
int buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
void buf_consume(struct buf *b, size_t n); /* drops n bytes from the front */
/*
 * Returns the content ("" if there is none) and leaves the buffer empty. The caller frees the
 * content.
 */
char *buf_steal(struct buf *b);
/*
 * Adds a JSON string. Control characters are escaped, also U+007F to U+009F, which a terminal
 * obeys. A byte that is not UTF-8 (names come from pods) becomes U+FFFD.
 */
void buf_json_string(struct buf *b, const char *s);
/*
 * Adds a gzip file of n bytes at p. level: 1 (fast) to 9 (small). -E2BIG: the file does not fit, or
 * there are more than 4 GiB of bytes.
 */
int buf_add_gzip(struct buf *b, const void *p, size_t n, int level);
/*
 * The same in pieces. The reader of the file can read each piece when it has it, without the next
 * one.
 */
struct gzip;
struct gzip *gzip_new(int level);
struct gzip *gzip_free(struct gzip *g);
int gzip_add(struct gzip *g, struct buf *b, const void *p, size_t n, bool last);

/* ---- varints: numbers as in Protocol Buffers (LEB128) ----------------------- */

#define VARINT_BYTES 10 /* of the longest one */
/*
 * Reads a number, and advances *p. Returns false if it does not end before `end`, or has more than
 * 64 bits.
 */
bool varint_read(const uint8_t **p, const uint8_t *end, uint64_t *ret);
size_t varint_write(uint64_t v, uint8_t ret[static VARINT_BYTES]); /* returns the number of bytes */
int buf_put_varint(struct buf *b, uint64_t v);			   /* 0 or -E2BIG */

/* ---- strings -------------------------------------------------------------- */

static inline bool streq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}
bool str_equal(const char *a, const char *b); /* NULL equals only NULL */
bool str_has_prefix(const char *s, const char *prefix);
bool str_has_suffix(const char *s, const char *suffix);
#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
/*
 * Returns the number of bytes of the UTF-8 character at s (RFC 3629), 0 if the bytes at s are no
 * valid character, and 1 at the end of s.
 */
size_t utf8_len(const char *s);
/*
 * Returns NULL if s is UTF-8, else a copy in which U+FFFD stands for each wrong byte. The caller
 * frees the copy.
 */
char *utf8_repaired(const char *s);
/*
 * The length in bytes of the longest prefix of s with at most max bytes and only whole characters.
 */
size_t utf8_cut(const char *s, size_t max);
/* A copy of at most max bytes (max >= 3). If s is longer, the copy is its beginning and "...". */
char *utf8_shorten(const char *s, size_t max);
/*
 * Parses a decimal number (or 0x...) without sign, spaces or text after it. -EINVAL: s is no such
 * number; -ERANGE: the number is above max.
 */
int str_to_u64(const char *s, uint64_t max, uint64_t *ret_value);
/*
 * Parses a duration as Go writes it ("50us", "10s", "1h30m"). -EINVAL: s is no duration; -ERANGE:
 * its nanoseconds do not fit into 64 bits.
 */
int str_to_duration_ns(const char *s, uint64_t *ret_ns);
void hex_encode(const void *bytes, size_t n, char *out); /* out: 2n+1 bytes */
int hex_decode(const char *hex, size_t max_bytes, uint8_t *out, size_t *ret_n);
/*
 * Decodes base64 (standard alphabet, padding optional, white space skipped). The caller frees
 * *ret_bytes.
 */
int base64_decode(const char *text, uint8_t **ret_bytes, size_t *ret_n);
/* Percent-encodes everything but unreserved characters of RFC 3986. */
void url_encode(struct buf *b, const char *s);
/*
 * Decodes n bytes of a URL's query: %XX, and '+' for a blank. NULL: they are wrong, or have a NUL.
 * The caller frees the text.
 */
char *url_decode(const char *s, size_t n);
/*
 * Returns the XXH3 hash. If an attacker may choose the keys, use a secret seed, so that he cannot
 * make them collide.
 */
uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
static inline uint64_t hash_str(const char *s)
{
	return hash_bytes(s, strlen(s), 0);
}
/*
 * The hash function of uthash's tables, if this header is included before uthash.h. It uses a
 * secret seed of this process. With uthash's own function a pod could choose names that all fall
 * into one bucket, and each look-up would go through all of them.
 */
unsigned hash_of_key(const void *p, size_t n);
#define HASH_FUNCTION(key, n, hash) ((hash) = hash_of_key((key), (n)))

/* ---- errors in user input -------------------------------------------------- */

/*
 * Where bad input is, and why it is bad. path: "spec.events.onCpu.sampleHz"; reason: "0 is not in
 * 1..999".
 */
struct field_error {
	char path[256];
	char reason[512];
};
/* Fills err (may be NULL) and returns -EINVAL. */
int field_error_set(struct field_error *err, const char *path, const char *fmt, ...) _printf_(3, 4);

/* ---- URLs: a server, and perhaps a path -------------------------------------- */

struct url {
	bool tls;
	char *host; /* a name or an address; IPv6 without its brackets */
	uint16_t port;
	char *path; /* "", or "/..." without '/' at its end */
};
/*
 * "http[s]://HOST[:PORT][/PATH]": no user, query, fragment or zone. -EINVAL: reason says what is
 * wrong with the URL.
 */
int url_parse(const char *s, struct url *ret, struct field_error *reterr);
void url_done(struct url *u);
/* Whether the host is this machine: "localhost", 127.0.0.0/8 or ::1. */
bool url_is_loopback(const char *host);

/* ---- log: one line on standard error --------------------------------------- */

enum log_level { LOG_ERR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_set_level(enum log_level level);
void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);
#define log_err(...)   log_line(LOG_ERR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* ---- time ------------------------------------------------------------------- */

uint64_t now_wall_ns(void);   /* CLOCK_REALTIME */
uint64_t now_mono_ns(void);   /* CLOCK_MONOTONIC */
uint64_t now_boot_ns(void);   /* CLOCK_BOOTTIME, the clock of BPF's bpf_ktime_get_boot_ns() */
uint64_t thread_cpu_ns(void); /* CPU time of the calling thread */
uint64_t own_cpu_ns(void);    /* CPU time of all threads of this process */
/*
 * How long a thread of this process could run, but had no CPU (/proc/PID/task/TID/schedstat, the
 * second number). false: there is no such thread, or the kernel does not count this.
 */
bool thread_cpu_wait_ns(pid_t tid, uint64_t *ret_ns);
/* RFC 3339 UTC, "2026-11-21T13:00:00Z". time_parse() also accepts fractions of seconds. */
void time_format(uint64_t wall_ns, char out[32]);
int time_parse(const char *s, uint64_t *ret_wall_ns);

/* ---- files -------------------------------------------------------------------- */

/*
 * Reads the whole file at dirfd/path, at most max_bytes (-E2BIG: it is larger). The data is
 * NUL-terminated; the caller frees it. ret_n may be NULL. It also reads files of /proc and /sys,
 * for which stat() gives the size 0.
 */
int file_read(int dirfd, const char *path, size_t max_bytes, char **ret_data, size_t *ret_n);
const char *file_error_text(int error); /* a text for an error of file_read */
/* Writes path.tmp, calls fsync() on it, and renames it to path. */
int file_write_atomic(const char *path, const void *data, size_t n, mode_t mode);
int mkdir_parents(const char *path, mode_t mode);
int fd_write_all(int fd, const void *data, size_t n);

/* ---- random --------------------------------------------------------------------- */

void random_bytes(void *p, size_t n);
uint64_t random_below(uint64_t bound); /* 0 .. bound-1; bound > 0 */

/* ---- counters: what was lost and why ---------------------------------------------- */

/*
 * A named counter. It belongs to the whole process and is never reset; /metrics prints all
 * counters. The agent does not read them: a loss that its code needs is passed as a value (struct
 * losses). counter("dropped_total", "reason", "ring_full") returns the same pointer each time it is
 * called with these three texts. Any thread may call counter_add().
 */
struct counter;
struct counter *counter(const char *name, const char *label, const char *label_value);
void counter_add(struct counter *c, uint64_t n);
uint64_t counter_get(const struct counter *c);
/* A gauge is a counter whose value is set, not added to. */
void counter_set(struct counter *c, uint64_t value);
typedef void counter_fn(const char *name, const char *label, const char *label_value,
			uint64_t value, void *arg);
void counter_each(counter_fn *fn, void *arg);
/*
 * Prints all counters as Prometheus text (version 0.0.4): HELP and TYPE, sorted, with "podflame_"
 * before a name that lacks it. Times are kept in ns and printed in seconds: x_ns_total is
 * podflame_x_seconds_total. metric_meanings.c has the meaning of each counter; .ci/check-metrics
 * reports a missing one.
 */
void counters_print(struct buf *out);
/*
 * A stage measures CPU time: what this thread uses from stage_begin() to the end of the scope is
 * added to the counter stage_cpu_ns_total{stage}.
 */
struct stage {
	const char *name;
	uint64_t began_ns;
};
struct stage stage_begin(const char *name);
void stage_end(struct stage *s);
#define _stage_(name) _cleanup_(stage_end) struct stage stage_ = stage_begin(name)

/* ---- YAML -> json_t ------------------------------------------------------------------ */

/*
 * Parses the first document of text (n bytes, <= 16 MiB, depth <= 64, 1,000,000 values; aliases are
 * refused). Scalars follow the YAML 1.2 core schema. yaml_position(doc, "a.b[2].c") gives line and
 * column of a mapping's key or of a list's item. Errors: -EINVAL, with "LINE:COLUMN" as reterr's
 * path.
 */
struct yaml_doc;
int yaml_parse(const char *text, size_t n, struct yaml_doc **ret, struct field_error *reterr);
/* Not yaml_free: libyaml exports that name. */
struct yaml_doc *yaml_doc_free(struct yaml_doc *d);
const json_t *yaml_root(const struct yaml_doc *d); /* borrowed */
int yaml_position(const struct yaml_doc *d, const char *path, unsigned *ret_line,
		  unsigned *ret_column);
/* Parses all documents of a text into a JSON array; for manifests and test cases. */
int yaml_parse_all(const char *text, size_t n, json_t **ret_array, struct field_error *reterr);

/* ---- JSON paths ------------------------------------------------------------------------ */

/*
 * Look-ups by a path such as "metadata.labels". If the value is absent or has another type,
 * json_at() returns NULL and the others return def.
 */
const json_t *json_at(const json_t *j, const char *path);
const char *json_str_at(const json_t *j, const char *path, const char *def);
int64_t json_int_at(const json_t *j, const char *path, int64_t def);
bool json_bool_at(const json_t *j, const char *path, bool def);
/* Returns the first object of an array that has the text as a member. NULL: there is none. */
json_t *json_with(const json_t *array, const char *member, const char *text);
/*
 * Keeps only some members of the object at key (of each object, if the value is an array), and
 * frees the memory of the others. words: the names of the members to keep, "a b c".
 */
void json_keep(json_t *parent, const char *key, const char *words);
/* An estimate of the memory that j uses. A short text or key needs 20 times its length. */
size_t json_memory_bytes(const json_t *j);
