/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, and times in RFC 3339 as the Kubernetes API writes them. */
#include "lib/base/base.h"

#include <inttypes.h>
#include <time.h>

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

uint64_t now_wall_ns(void)
{
	return now_ns(CLOCK_REALTIME);
}

uint64_t now_mono_ns(void)
{
	return now_ns(CLOCK_MONOTONIC);
}

uint64_t now_boot_ns(void)
{
	return now_ns(CLOCK_BOOTTIME);
}

uint64_t thread_cpu_ns(void)
{
	return now_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t own_cpu_ns(void)
{
	return now_ns(CLOCK_PROCESS_CPUTIME_ID);
}

bool thread_cpu_wait_ns(pid_t tid, uint64_t *ret_ns)
{
	_cleanup_free_ char *path = xasprintf("/proc/self/task/%d/schedstat", (int)tid);
	_cleanup_free_ char *text = NULL;
	uint64_t cpu_ns;

	/* a kernel that does not count says "0 0 0", and this thread has had a CPU */
	return file_read(-1, path, 256, &text, NULL) == 0 &&
	       sscanf(text, "%" SCNu64 " %" SCNu64, &cpu_ns, ret_ns) == 2 && cpu_ns;
}

void time_format(uint64_t wall_ns, char out[32])
{
	time_t s = (time_t)(wall_ns / NSEC_PER_SEC);
	struct tm tm;

	gmtime_r(&s, &tm);
	strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int parse_zone(const char *s, int64_t *ret_offset_s)
{
	unsigned h, m;
	int n = 0;

	if (streq(s, "Z") || streq(s, "z")) {
		*ret_offset_s = 0;
		return 0;
	}
	if ((*s != '+' && *s != '-') || sscanf(s + 1, "%2u:%2u%n", &h, &m, &n) != 2 || s[1 + n] ||
	    h > 23 || m > 59)
		return -EINVAL;
	*ret_offset_s = (*s == '-' ? -1 : 1) * (int64_t)(h * 3600 + m * 60);
	return 0;
}

int time_parse(const char *s, uint64_t *ret_wall_ns)
{
	struct tm tm = {0};
	uint64_t frac = 0, scale = NSEC_PER_SEC;
	int64_t offset;
	time_t t;

	s = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
	if (!s)
		return -EINVAL;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++)
			if (scale > 1) {
				scale /= 10;
				frac += (uint64_t)(*s - '0') * scale;
			}
	if (parse_zone(s, &offset))
		return -EINVAL;
	t = timegm(&tm) - offset;
	if (t < 0 || (uint64_t)t >= UINT64_MAX / NSEC_PER_SEC)
		return -ERANGE;
	*ret_wall_ns = (uint64_t)t * NSEC_PER_SEC + frac;
	return 0;
}
