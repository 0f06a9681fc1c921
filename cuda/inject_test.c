// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the library as a program uses it: it is loaded by its path, its probes are found by its ELF
 * notes, and it has its own thread. The stand-in libcupti is not loaded until the library opens it,
 * beside the stand-in libcudart.
 */
#include "podflame_cuda.h"
#include "testcalls.h"
#include "testprobes.h"

#include "e2e/gpu/standin_cupti.h"
#include "lib/base/testprogram.h"

#include <dirent.h>
#include <dlfcn.h>
#include <gelf.h>
#include <glob.h>
#include <libelf.h>
#include <linux/perf_event.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { cudaLaunchKernel = 211, cuLaunchKernel = 307 };

/* ---- the library's notes ---- */

enum probe { LAUNCH, WORK, STATUS, N_PROBES };

struct note {
	char name[16], arguments[64];
	/* addresses as they stand in the ELF file */
	uint64_t address, semaphore;
};

static struct note notes[N_PROBES];
static char library[4096];
static uint8_t *base;
static void *handle;

static void read_note(const char *data)
{
	static const char *const names[N_PROBES] = {"launch", "work", "status"};
	const char *provider = data + 24, *name = provider + strlen(provider) + 1;

	assert_string_equal(provider, "podflame_cuda");
	for (int i = 0; i < N_PROBES; i++) {
		if (!streq(names[i], name))
			continue;
		memcpy(&notes[i].address, data, 8);
		memcpy(&notes[i].semaphore, data + 16, 8);
		strncpy(notes[i].name, name, sizeof(notes[i].name) - 1);
		strncpy(notes[i].arguments, name + strlen(name) + 1,
			sizeof(notes[i].arguments) - 1);
	}
}

static void read_notes_of(Elf_Data *data)
{
	size_t at = 0, next, name, contents;
	GElf_Nhdr n;

	while ((next = gelf_getnote(data, at, &n, &name, &contents)) > 0) {
		if (n.n_type == 3 && streq((const char *)data->d_buf + name, "stapsdt"))
			read_note((const char *)data->d_buf + contents);
		at = next;
	}
}

static void read_notes(void)
{
	_cleanup_close_ int fd = open(library, O_RDONLY | O_CLOEXEC);
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	Elf *elf;

	elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type == SHT_NOTE)
			read_notes_of(elf_getdata(section, NULL));
	elf_end(elf);
}

/*
 * Returns the offset in the file of an address of the ELF file. The file must have bytes for this
 * address.
 */
static uint64_t file_offset(uint64_t address)
{
	_cleanup_close_ int fd = open(library, O_RDONLY | O_CLOEXEC);
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	uint64_t offset = 0;
	GElf_Phdr p;

	for (int i = 0; gelf_getphdr(elf, i, &p); i++)
		if (p.p_type == PT_LOAD && address >= p.p_vaddr && address < p.p_vaddr + p.p_filesz)
			offset = address - p.p_vaddr + p.p_offset;
	elf_end(elf);
	assert_true(offset > 0);
	return offset;
}

static uint16_t *semaphore(enum probe probe)
{
	return (uint16_t *)(base + notes[probe].semaphore);
}

/* Sets the semaphore of a probe, as the kernel does for profilers that attach. */
static void attach(enum probe probe, uint16_t n)
{
	__atomic_store_n(semaphore(probe), n, __ATOMIC_RELAXED);
}

/* ---- the program ---- */

static struct standin_cupti *cupti(void)
{
	void *standin = dlopen("libcupti.so.12", RTLD_LAZY | RTLD_NOLOAD);

	return standin ? dlsym(standin, "standin_cupti") : NULL;
}

/* Flushes CUPTI's buffers, as CUPTI does itself when the process exits. */
static void flush(void)
{
	void *standin = dlopen("libcupti.so.12", RTLD_LAZY | RTLD_NOLOAD);
	int (*flush_all)(uint32_t) = dlsym(standin, "cuptiActivityFlushAll");

	assert_int_equal(flush_all(1), 0);
}

/* The path of a stand-in in e2e/gpu's folder of the same build. */
static char *standin_path(const char *name)
{
	int n = (int)(strrchr(library, '/') + 1 - library);

	return xasprintf("%.*s../gpu/%s", n, library, name);
}

/* Loads and initializes the library, as cuInit() does in a program that uses the runtime. */
static void load(void)
{
	_cleanup_free_ char *runtime = standin_path("libcudart.so.12");
	struct link_map *map;
	int (*initialize)(void);

	assert_non_null(dlopen(runtime, RTLD_NOW));
	handle = dlopen(library, RTLD_NOW);
	assert_non_null(handle);
	dlinfo(handle, RTLD_DI_LINKMAP, &map);
	base = (uint8_t *)map->l_addr;
	initialize = dlsym(handle, "InitializeInjection");
	assert_non_null(initialize);
	assert_int_equal(initialize(), 1);
	assert_int_equal(initialize(), 1); /* a second call starts nothing */
}

static void trap_probes(void)
{
	seen_begin(base + notes[LAUNCH].address, base + notes[WORK].address,
		   base + notes[STATUS].address);
}

static void launch(uint32_t stream)
{
	struct standin_work work = {STANDIN_KERNEL,
				    "kernel",
				    .ns = 1000 + stream,
				    .device = stream % 4,
				    .context = stream % 4 + 1,
				    .stream = stream};

	run_call(&(struct test_call){.runtime_id = cudaLaunchKernel,
				     .driver_id = cuLaunchKernel,
				     .function = "cudaLaunchKernel",
				     .kernel = "kernel",
				     .context = stream % 4 + 1,
				     .work = &work,
				     .n_work = 1});
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Waits until the library has looked at the semaphores once more. */
static struct podflame_cuda_status next_status(void)
{
	size_t n = seen_number(&seen.n_status);
	struct podflame_cuda_status status;

	while (seen_number(&seen.n_status) < n + 2)
		pause_ms(1);
	seen_lock();
	status = seen.status;
	seen_unlock();
	return status;
}

static void until_state(enum podflame_cuda_state state)
{
	size_t n = 0;

	for (bool is_there = false; !is_there;) {
		pause_ms(1);
		seen_lock();
		is_there = seen.n_status != n && seen.status.state == state;
		n = seen.n_status;
		seen_unlock();
	}
}

static void start(void)
{
	attach(LAUNCH, 1);
	attach(WORK, 1);
	until_state(PODFLAME_CUDA_RUNNING);
}

static void stop(void)
{
	attach(LAUNCH, 0);
	attach(WORK, 0);
	until_state(PODFLAME_CUDA_STOPPING);
	launch(0);
	until_state(PODFLAME_CUDA_IDLE);
	seen_forget();
}

/* ---- tests ---- */

static void the_notes_name_the_arguments(void **state)
{
	assert_string_equal(notes[LAUNCH].arguments, "4@%edi 4@%esi 4@%edx 8@%rcx 8@%r8 4@%r9d");
	assert_string_equal(notes[WORK].arguments, "8@%rdi 4@%esi 4@%edx");
	assert_string_equal(notes[STATUS].arguments, "8@%rdi 4@%esi");
	for (int i = 0; i < N_PROBES; i++) {
		file_offset(notes[i].address);
		file_offset(notes[i].semaphore);
	}
	(void)state;
}

/* Calls check() for each line that the command prints. */
static void each_line(const char *command, void (*check)(char *line))
{
	char line[512];
	FILE *f = popen(command, "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		check(line);
	assert_int_equal(pclose(f), 0);
}

static unsigned n_exported;

static void check_symbol(char *line)
{
	unsigned major, minor;
	char *version = strstr(line, "GLIBC_");

	if (version && sscanf(version, "GLIBC_%u.%u", &major, &minor) == 2)
		assert_true(major == 2 && minor <= 17);
	if (!strstr(line, "*UND*") && strstr(line, ".text")) {
		assert_non_null(strstr(line, "InitializeInjection"));
		n_exported++;
	}
}

static void old_glibc_is_enough(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("skipped: a sanitizer adds symbols\n");
	skip();
#endif
	_cleanup_free_ char *command = xasprintf("objdump -T '%s'", library);

	each_line(command, check_symbol);
	assert_int_equal(n_exported, 1);
	(void)state;
}

static void cupti_is_not_even_loaded_before(void **state)
{
	attach(STATUS, 1);
	launch(1);
	assert_int_equal(next_status().state, PODFLAME_CUDA_IDLE);
	assert_null(cupti());
	(void)state;
}

static void it_runs_while_a_profiler_is_attached(void **state)
{
	struct podflame_cuda_status status;
	unsigned n_calls;

	start();
	for (int i = 0; i < 100; i++)
		launch(3);
	status = next_status();
	assert_int_equal(status.all[PODFLAME_CUDA_KERNEL].n, 100);
	assert_int_equal(status.all[PODFLAME_CUDA_KERNEL].ns, 100 * 1003);
	assert_int_equal(seen_number(&seen.n_launches), 100);
	assert_int_equal(seen_number(&seen.n_work), 100);
	assert_true(status.own_ns > 0);
	stop();
	assert_int_equal(cupti()->n_finalized, 1);
	n_calls = cupti()->n_calls;
	launch(1);
	next_status();
	assert_int_equal(cupti()->n_calls, n_calls);
	(void)state;
}

enum { N_THREADS = 4, N_EACH = 20000 };

static void *run_thread(void *stream)
{
	for (int i = 0; i < N_EACH; i++)
		launch((uint32_t)(uintptr_t)stream);
	return NULL;
}

static void threads_devices_and_streams_are_told_apart(void **state)
{
	uint64_t before = next_status().all[PODFLAME_CUDA_KERNEL].n;
	pthread_t threads[N_THREADS];
	struct podflame_cuda_status status;

	start();
	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, run_thread, (void *)i);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	status = next_status();
	assert_int_equal(status.all[PODFLAME_CUDA_KERNEL].n + status.n_dropped - before,
			 N_THREADS * N_EACH);
	for (size_t i = 0; i < seen.n_work; i++) {
		const struct podflame_cuda_work *w = &seen.work[i];

		assert_int_equal(w->end_ns - w->start_ns, 1000 + w->stream);
		assert_int_equal(w->device, w->stream % 4);
		assert_int_equal(w->context, w->stream % 4 + 1);
	}
	for (size_t i = 0; i < seen.n_work; i++)
		for (size_t l = 0; l < seen.n_launches; l++)
			if (seen.launches[l].correlation == seen.work[i].correlation) {
				assert_int_equal(seen.launches[l].level, seen.work[i].level);
				assert_int_equal(seen.launches[l].context, seen.work[i].context);
				seen.work[i].correlation = 0;
			}
	for (size_t i = 0; i < seen.n_work; i++)
		/* the launch of each piece of work was found */
		assert_int_equal(seen.work[i].correlation, 0);
	stop();
	(void)state;
}

static void in_a_forked_child_nothing_runs(void **state)
{
	int status;
	pid_t child;

	start();
	launch(1);
	child = fork();
	if (child == 0) {
		size_t n = seen.n_launches, n_work = seen.n_work;

		launch(1);
		flush(); /* the record of the parent's launch */
		_exit(seen.n_launches == n && seen.n_work == n_work ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	launch(2);
	next_status();
	assert_int_equal(seen_number(&seen.n_work), 2);
	stop();
	(void)state;
}

static void it_stays_after_dlclose(void **state)
{
	assert_int_equal(dlclose(handle), 0);
	start();
	launch(1);
	next_status();
	assert_int_equal(seen_number(&seen.n_work), 1);
	stop();
	(void)state;
}

/* Returns the id of the library's thread. */
static pid_t watcher(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *e;
	pid_t found = 0;

	while ((e = readdir(tasks))) {
		_cleanup_free_ char *path = xasprintf("/proc/self/task/%s/comm", e->d_name);
		FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
		char name[32] = "";

		if (f && fgets(name, sizeof(name), f) && streq(name, "podflame-cuda\n"))
			found = (pid_t)strtol(e->d_name, NULL, 10);
		if (f)
			fclose(f);
	}
	closedir(tasks);
	return found;
}

static void its_thread_takes_no_signal_of_the_program(void **state)
{
	_cleanup_free_ char *path = xasprintf("/proc/self/task/%d/status", watcher());
	FILE *f = fopen(path, "re");
	uint64_t blocked = 0;
	char line[256];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "SigBlk: %lx", &blocked);
	fclose(f);
	assert_true(blocked & 1 << (SIGTERM - 1));
	assert_true(blocked & 1 << (SIGPROF - 1));
	assert_false(blocked & 1 << (SIGSEGV - 1));
	/* a seccomp filter may send SIGSYS to this thread */
	assert_false(blocked & 1 << (SIGSYS - 1));
	(void)state;
}

/* ---- in a process of its own ---- */

static pid_t run_self(char *role, int *ret_to, int *ret_from)
{
	char *argv[] = {"inject_test", role, NULL};
	posix_spawn_file_actions_t files;
	int to[2], from[2];
	pid_t pid;

	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, to[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&files, from[1], STDOUT_FILENO);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&files);
	close(to[0]);
	close(from[1]);
	*ret_to = to[1];
	*ret_from = from[0];
	return pid;
}

/*
 * Initializes CUDA as a program does that knows nothing of the library. Without a device, cuInit()
 * fails.
 */
static int initialize_cuda(void)
{
	void *driver = dlopen(getenv("DRIVER"), RTLD_NOW);
	int (*cuInit)(unsigned) = driver ? dlsym(driver, "cuInit") : NULL;

	if (!cuInit)
		return 1;
	cuInit(0);
	while (watcher() == 0)
		pause_ms(1);
	return 0;
}

static void is_loaded_by(const char *driver)
{
	int to, from, status;
	pid_t child;

	setenv("CUDA_INJECTION64_PATH", library, 1);
	setenv("DRIVER", driver, 1);
	child = run_self("--cuinit", &to, &from);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	unsetenv("CUDA_INJECTION64_PATH");
	close(to);
	close(from);
}

static void the_driver_loads_it_at_cuinit(void **state)
{
	_cleanup_free_ char *driver = standin_path("push/libcuda.so.1");

	is_loaded_by(driver);
	(void)state;
}

/* Finds NVIDIA's own drivers, if `.ci/deps long` has installed them. */
static bool find_nvidias_drivers(glob_t *ret)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *pattern = xasprintf("%s%s/podflame/nvidia/*/libcuda.so.1",
						 cache	? cache
						 : home ? home
							: "",
						 cache ? "" : "/.cache");

	return glob(pattern, 0, NULL, ret) == 0;
}

static void nvidias_drivers_load_it(void **state)
{
	glob_t found;

	if (!find_nvidias_drivers(&found)) {
		print_message("skipped: no driver of NVIDIA's here\n");
		skip();
	}
	for (size_t i = 0; i < found.gl_pathc; i++)
		is_loaded_by(found.gl_pathv[i]);
	globfree(&found);
	(void)state;
}

static void say_work(void)
{
	if (seen.n_work == 3)
		(void)!write(STDOUT_FILENO, "3", 1);
}

/* Launches three kernels and exits before the library's thread can flush. */
static int exit_at_once(void)
{
	load();
	trap_probes();
	attach(STATUS, 1);
	start();
	seen_lock();
	seen.hook = say_work;
	seen_unlock();
	for (int i = 0; i < 3; i++)
		launch(1);
	return 0;
}

static void work_before_the_exit_is_told(void **state)
{
	int to, from, status;
	pid_t child = run_self("--exit", &to, &from);
	char answer = 0;

	assert_int_equal(read(from, &answer, 1), 1);
	assert_int_equal(answer, '3');
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(to);
	close(from);
	(void)state;
}

static int exit_with_stuck_cupti(void)
{
	load();
	trap_probes();
	attach(STATUS, 1);
	start();
	__atomic_store_n(&cupti()->is_stuck, true, __ATOMIC_RELAXED);
	return 0;
}

static void a_cupti_that_is_stuck_does_not_keep_the_exit(void **state)
{
	int to, from, status;
	pid_t child = run_self("--stuck", &to, &from);

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(to);
	close(from);
	(void)state;
}

/* Launches kernels until the library has loaded CUPTI and removed it again. */
static int run_until_detached(void)
{
	load();
	while (!cupti() || cupti()->n_finalized == 0) {
		launch(1);
		pause_ms(1);
	}
	return 0;
}

static int open_uprobe(pid_t pid, enum probe probe)
{
	struct perf_event_attr attr = {.size = sizeof(attr)};
	char text[16] = "";
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");

	if (!f)
		return -1;
	(void)!fgets(text, sizeof(text), f);
	fclose(f);
	attr.type = (uint32_t)strtoul(text, NULL, 10);
	attr.config = file_offset(notes[probe].semaphore) << 32; /* the semaphore's file offset */
	attr.uprobe_path = (uintptr_t)library;
	attr.probe_offset = file_offset(notes[probe].address);
	return (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void a_uprobe_of_the_kernel_starts_and_ends_it(void **state)
{
	int to, from, status, fd;
	pid_t child = run_self("--run", &to, &from);
	uint64_t n = 0;

	fd = open_uprobe(child, LAUNCH);
	if (fd < 0) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		print_message("skipped: no uprobes here: %s\n", strerror(errno));
		skip();
	}
	while (n < 20) {
		pause_ms(1);
		assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	}
	close(fd); /* the semaphore is 0 again */
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(to);
	close(from);
	(void)state;
}

/* ---- */

static void find_library(void)
{
	char exe[2048];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[n > 0 ? n : 0] = '\0';
	*strrchr(exe, '/') = '\0';
	snprintf(library, sizeof(library), "%s/libpodflame-cuda.so", exe);
	read_notes();
}

static int set_up(void **state)
{
	load();
	trap_probes();
	(void)state;
	return 0;
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(cupti_is_not_even_loaded_before), /* must be the first test */
		cmocka_unit_test(the_notes_name_the_arguments),
		cmocka_unit_test(old_glibc_is_enough),
		cmocka_unit_test(it_runs_while_a_profiler_is_attached),
		cmocka_unit_test(threads_devices_and_streams_are_told_apart),
		cmocka_unit_test(in_a_forked_child_nothing_runs),
		cmocka_unit_test(it_stays_after_dlclose),
		cmocka_unit_test(its_thread_takes_no_signal_of_the_program),
		cmocka_unit_test(the_driver_loads_it_at_cuinit),
		cmocka_unit_test(nvidias_drivers_load_it),
		cmocka_unit_test(work_before_the_exit_is_told),
		cmocka_unit_test(a_cupti_that_is_stuck_does_not_keep_the_exit),
		cmocka_unit_test(a_uprobe_of_the_kernel_starts_and_ends_it),
	};

	find_library();
	if (argc > 1 && streq(argv[1], "--cuinit"))
		return initialize_cuda();
	if (argc > 1 && streq(argv[1], "--exit"))
		return exit_at_once();
	if (argc > 1 && streq(argv[1], "--stuck"))
		return exit_with_stuck_cupti();
	if (argc > 1 && streq(argv[1], "--run"))
		return run_until_detached();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, NULL);
}
