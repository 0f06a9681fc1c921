/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damaged SECONDS: runs copies of itself, each for a moment, with a build id of its own and a table
 * that is damaged, or that is larger than anybody wants to read: unwind rows, symbols, sections.
 * The file's name has a line break and what stands between frames in a folded stack. Prints once a
 * second "did files=N". "damaged burn" is what a copy does.
 */
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FLIPS	    64
#define LARGE_BYTES (512ull << 20)
#define PATH	    "/tmp/lib\n;[k] damaged-%u"

struct file {
	uint8_t *bytes;
	size_t n;
};

__attribute__((noinline)) static void burn(void)
{
	struct timespec t = {0};

	while (t.tv_sec == 0 && t.tv_nsec < 40000000) {
		for (volatile unsigned i = 0; i < 20000; i++)
			;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	}
}

static struct file read_self(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	struct stat st;
	struct file f;

	if (fd < 0 || fstat(fd, &st))
		exit(3);
	f = (struct file){malloc((size_t)st.st_size), (size_t)st.st_size};
	if (!f.bytes || read(fd, f.bytes, f.n) != (ssize_t)f.n)
		exit(3);
	close(fd);
	return f;
}

static Elf64_Shdr *section(const struct file *f, const char *name)
{
	Elf64_Ehdr *e = (Elf64_Ehdr *)f->bytes;
	Elf64_Shdr *s = (Elf64_Shdr *)(f->bytes + e->e_shoff);
	const char *texts = (char *)f->bytes + s[e->e_shstrndx].sh_offset;

	for (unsigned i = 0; i < e->e_shnum; i++)
		if (!strcmp(texts + s[i].sh_name, name))
			return &s[i];
	exit(4);
}

static void flip(const struct file *f, const char *name)
{
	Elf64_Shdr *s = section(f, name);

	for (unsigned i = 0; i < FLIPS; i++)
		f->bytes[s->sh_offset + (size_t)rand() % s->sh_size] ^= (uint8_t)(1 + rand() % 255);
}

/* Nothing of this is read when the program is loaded and runs. Returns the file's size. */
static size_t damage(const struct file *f, unsigned k)
{
	Elf64_Ehdr *e = (Elf64_Ehdr *)f->bytes;
	Elf64_Shdr *s;

	/* behind the note's header and its name, "GNU" */
	memcpy(f->bytes + section(f, ".note.gnu.build-id")->sh_offset + 16, &k, sizeof(k));
	switch (k % 5) {
	case 0:
		flip(f, ".eh_frame");
		flip(f, ".eh_frame_hdr");
		break;
	case 1:
		flip(f, ".symtab");
		flip(f, ".strtab");
		break;
	case 2: /* a hole of many symbols */
		s = section(f, ".symtab");
		s->sh_offset = f->n;
		s->sh_size = LARGE_BYTES / sizeof(Elf64_Sym) * sizeof(Elf64_Sym);
		return f->n + LARGE_BYTES;
	case 3: /* rows behind the end of the file */
		s = section(f, ".eh_frame");
		s->sh_size = UINT64_MAX - s->sh_offset;
		break;
	default:
		e->e_shnum = 0;
		((Elf64_Shdr *)(f->bytes + e->e_shoff))->sh_size = UINT32_MAX;
	}
	return f->n;
}

static void write_file(const char *path, const struct file *f, size_t n)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0755);

	if (fd < 0 || write(fd, f->bytes, f->n) != (ssize_t)f->n || ftruncate(fd, (off_t)n))
		exit(5);
	close(fd);
}

static void run(const struct file *self, unsigned k)
{
	struct file f = {malloc(self->n), self->n};
	char path[64];
	pid_t pid;

	if (!f.bytes)
		exit(3);
	memcpy(f.bytes, self->bytes, f.n);
	snprintf(path, sizeof(path), PATH, k);
	write_file(path, &f, damage(&f, k));
	free(f.bytes);
	pid = fork();
	if (pid == 0) {
		execl(path, path, "burn", NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
	unlink(path);
}

int main(int argc, char **argv)
{
	struct file self;
	time_t end, told = 0;

	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "burn")) {
		burn();
		return 0;
	}
	self = read_self();
	setvbuf(stdout, NULL, _IOLBF, 0);
	end = time(NULL) + atoi(argv[1]);
	for (unsigned k = 1; time(NULL) < end; k++) {
		run(&self, k);
		if (time(NULL) == told)
			continue;
		told = time(NULL);
		printf("did files=%u\n", k);
	}
	return 0;
}
