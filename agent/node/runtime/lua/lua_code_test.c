// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the search for the loop and its callers in machine code. The test links programs with this
 * machine's gcc and Lua, whose symbols give the right answer. Then it searches in the programs
 * without these symbols. It also has first instructions of functions, written by hand.
 */
#include "node/runtime/lua/lua.h"

#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "node/parse/parse.h"

/* ---- first instructions of functions ---- */

static void the_first_argument_is_followed(void **state)
{
	/* push r15; push rbp; mov rdi,rbp; push rbx; sub 0x58,rsp; ret */
	static const uint8_t in_register[] = {0x41, 0x57, 0x55, 0x48, 0x89, 0xfd,
					      0x53, 0x48, 0x83, 0xec, 0x58, 0xc3};
	/* sub 0x108,rsp; mov rdi,8(rsp); mov rsi,0x10(rsp); xor edi,edi; call */
	static const uint8_t on_stack[] = {0x48, 0x81, 0xec, 0x08, 0x01, 0,    0,    0x48,
					   0x89, 0x7c, 0x24, 0x08, 0x48, 0x89, 0x74, 0x24,
					   0x10, 0x31, 0xff, 0xe8, 0,	 0,    0,    0};
	/* push rbp; mov rsp,rbp; sub 0x20,rsp; mov rdi,-0x18(rbp); ret */
	static const uint8_t by_frame[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec,
					   0x20, 0x48, 0x89, 0x7d, 0xe8, 0xc3};
	/* push rbx; mov 8(rdi),rdi; mov rdi,rbx; ret: rdi has another pointer when it is saved */
	static const uint8_t changed[] = {0x53, 0x48, 0x8b, 0x7f, 0x08, 0x48, 0x89, 0xfb, 0xc3};
	struct lua_prologue p;

	(void)state;
	runtime_lua_prologue(in_register, sizeof(in_register), &p);
	assert_int_equal(p.home, LUA_HOME_REG);
	assert_int_equal(p.home_at, 5);
	assert_int_equal(p.saved[15], 16);
	assert_int_equal(p.saved[5], 24);
	assert_int_equal(p.saved[3], 32);
	assert_int_equal(p.frame, 32 + 0x58);
	assert_int_equal(p.bytes, sizeof(in_register) - 1);
	runtime_lua_prologue(on_stack, sizeof(on_stack), &p);
	assert_int_equal(p.home, LUA_HOME_CFA);
	assert_int_equal(p.home_at, 8 + 0x108 - 8);
	runtime_lua_prologue(by_frame, sizeof(by_frame), &p);
	assert_int_equal(p.home, LUA_HOME_RBP);
	assert_int_equal(p.home_at, -0x18);
	runtime_lua_prologue(changed, sizeof(changed), &p);
	assert_int_equal(p.home, LUA_HOME_NONE);
}

/* ---- whole programs ---- */

struct program {
	char path[64];
	struct elf_index *index;
	uint8_t *bytes;
	size_t n;
	struct lua_text text;
};
static char folder[] = "/tmp/lua_code_test.XXXXXX";
static struct parser *parser;
static const char *const marks[] = {"luaV_execute", "lua_resume", NULL};

static int shell(const char *command)
{
	return system(command); /* NOLINT: the test makes the command from constants */
}

/* Links Lua 5.MINOR into a program. false: this machine does not have that version. */
static bool build(unsigned minor, const char *flags, const char *name, struct program *ret)
{
	_cleanup_free_ char *command = NULL;

	snprintf(ret->path, sizeof(ret->path), "%s/%s", folder, name);
	command = xasprintf(
		"printf '#include <lauxlib.h>\\n#include <lualib.h>\\nint main(void) { "
		"lua_State *L = luaL_newstate(); luaL_openlibs(L); return luaL_loadfile(L, "
		"\"x\") || lua_pcall(L, 0, 0, 0); }\\n' | gcc -w -x c - "
		"-I/usr/include/lua5.%u %s -o %s -l:liblua5.%u.a -lm -ldl 2>/dev/null",
		minor, flags, ret->path, minor);
	return shell(command) == 0;
}

static void load(struct program *p)
{
	int fd = open(p->path, O_RDONLY | O_CLOEXEC);
	const Elf64_Phdr *h;
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(parse_elf(parser, fd, &p->index), 0);
	assert_int_equal(fstat(fd, &st), 0);
	p->n = (size_t)st.st_size;
	p->bytes = mmap(NULL, p->n, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	p->text = (struct lua_text){.index = p->index};
	h = (const Elf64_Phdr *)(p->bytes + ((const Elf64_Ehdr *)p->bytes)->e_phoff);
	for (unsigned k = 0; k < ((const Elf64_Ehdr *)p->bytes)->e_phnum; k++, h++) {
		if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
			continue;
		p->text.code = p->bytes + h->p_offset;
		p->text.address = h->p_vaddr;
		p->text.n = h->p_filesz;
	}
}

static void unload(struct program *p)
{
	elf_index_unref(p->index);
	munmap(p->bytes, p->n);
}

static bool has_outermost(const struct lua_loop *l)
{
	for (size_t k = 0; k < l->n_sites; k++)
		if (l->sites[k].outermost)
			return true;
	return false;
}

static void assert_found(unsigned minor, const char *flags)
{
	struct program with = {0}, without = {0};
	struct lua_loop told, found;
	struct elf_mark mark;

	if (!build(minor, flags, "with", &with) || !build(minor, "-s", "without", &without)) {
		print_message("no gcc, or no liblua5.%u.a: skipped\n", minor);
		skip();
	}
	load(&with);
	assert_int_equal(elf_index_find_mark(with.index, "luaV_execute", &mark), 0);
	/* The loop is found by its code. Symbols are used only for the comparison. */
	assert_int_equal(runtime_lua_find_loop(&with.text, runtime_lua_layout(minor), &found), 0);
	assert_int_equal(found.start, mark.address);
	assert_in_range(found.end, mark.address + mark.size, mark.address + mark.size + 15);
	assert_true(found.n_sites >= 2 && has_outermost(&found));
	with.text.loop = mark.address;
	with.text.loop_bytes = mark.size;
	assert_int_equal(runtime_lua_find_loop(&with.text, runtime_lua_layout(minor), &told), 0);
	assert_int_equal(told.n_sites, found.n_sites);
	assert_memory_equal(told.sites, found.sites, sizeof(found.sites));
	/* The loop of another version is not found. */
	assert_int_equal(runtime_lua_find_loop(&(struct lua_text){.code = with.text.code,
								  .address = with.text.address,
								  .n = 4096,
								  .index = with.index},
					       runtime_lua_layout(minor), &told),
			 -ENOENT);
	unload(&with);
	load(&without);
	assert_int_equal(elf_index_find_mark(without.index, "luaV_execute", &mark), -ENOENT);
	assert_int_equal(runtime_lua_find_loop(&without.text, runtime_lua_layout(minor), &found),
			 0);
	assert_true(found.n_sites >= 2 && has_outermost(&found));
	unload(&without);
}

static void the_loop_is_found_without_symbols(void **state)
{
	(void)state;
	for (unsigned minor = 1; minor <= 4; minor++)
		assert_found(minor, "");
}

static void the_loop_is_found_in_static_programs(void **state)
{
	(void)state;
	for (unsigned minor = 1; minor <= 4; minor++)
		assert_found(minor, "-static");
}

static int setup(void **state)
{
	struct parser_config c = {.marks = marks};

	(void)state;
	return mkdtemp(folder) ? parse_new(&c, &parser) : -1;
}

static int teardown(void **state)
{
	_cleanup_free_ char *command = xasprintf("rm -rf %s", folder);

	(void)state;
	parser = parse_free(parser);
	return shell(command);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_argument_is_followed),
		cmocka_unit_test(the_loop_is_found_without_symbols),
		cmocka_unit_test(the_loop_is_found_in_static_programs),
	};

	if (argc > 1 && streq(argv[1], PARSE_CHILD_VERB))
		return parse_child_main(argc, argv);
	return cmocka_run_group_tests(tests, setup, teardown);
}
