/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to runtime: shared by the files of Lua. Runs on the reader's thread; all memory is
 * hostile.
 */
#pragma once

#include "node/runtime/internal.h"

/* ---- the layout of structures in each version (lobject.h, lstate.h, lopcodes.h) ---- */

struct lua_layout {
	unsigned minor; /* x of version 5.x */
	struct pf_lua kernel;
	/* Offsets of Proto's arrays. abslines 0: in this version, lines are not compressed. */
	uint16_t k, code, protos, lines, abslines, locals, upvalues, source;
	/*
	 * Offsets of the sizes of these arrays. An item of lines is an int or, with abslines, a
	 * byte.
	 */
	uint16_t n_k, n_protos, n_lines, n_abslines, n_locals, n_upvalues;
	uint16_t line_defined;
	uint8_t proto_tag; /* the tag in a Proto's header */
	/* size of an item of upvalues; its first member is the pointer to the name */
	uint8_t upvalue_size;
	uint8_t nups; /* 5.1: offset of Proto.nups */
	/* width of an opcode in bits; operand A follows it; lua_name.c has the other operands */
	uint8_t op_bits;
	uint8_t dispatch_mask;
	uint8_t n_opcodes;
	uint8_t l_calls; /* offset of lua_State.nCcalls */
	/* bits of CallInfo.callstatus */
	uint16_t tail, hooked, finalizer;
};
/* Returns the layout of Lua 5.minor; NULL: the version is not known. */
const struct lua_layout *runtime_lua_layout(unsigned minor);

/* ---- lua_code.c: finds the interpreter's loop in machine code ---- */

struct lua_text {
	const uint8_t *code;
	uint64_t address; /* ELF virtual address */
	size_t n;
	const struct elf_index *index;
	/* address and size of luaV_execute, from its symbol; 0: not known */
	uint64_t loop, loop_bytes;
	uint64_t resume; /* address of lua_resume, from its symbol; 0: not known */
};
struct lua_loop {
	uint64_t start, end, settled; /* ELF virtual addresses, like those of the sites */
	uint32_t frame;
	struct pf_lua_site sites[PF_LUA_SITES];
	size_t n_sites;
};
/*
 * Finds the loop and its callers. -ENOENT: no loop is found. -ENOTSUP: its callers have a form that
 * no known compiler makes.
 */
int runtime_lua_find_loop(const struct lua_text *t, const struct lua_layout *l,
			  struct lua_loop *ret);

/* lua_insn.c: the first instructions of a function */
#define LUA_REGS 16 /* registers, numbered as in instructions */
enum lua_home { LUA_HOME_NONE, LUA_HOME_REG, LUA_HOME_CFA, LUA_HOME_RBP };
struct lua_prologue {
	uint32_t saved[LUA_REGS]; /* distance of the saved register below the CFA; 0: not saved */
	uint32_t frame;		  /* CFA - rsp after the prologue */
	size_t bytes;
	/*
	 * Where the function keeps its first argument: in register home_at, which calls preserve;
	 * at CFA - home_at; or at rbp + home_at.
	 */
	enum lua_home home;
	int32_t home_at;
};
void runtime_lua_prologue(const uint8_t *code, size_t n, struct lua_prologue *ret);
/* Returns the size of an instruction; 1: the bytes are not an instruction. */
size_t runtime_lua_insn_bytes(const uint8_t *code, size_t n);
/*
 * Returns the offset of the end of the first call through a register or memory; 0: there is none.
 */
size_t runtime_lua_indirect_call(const uint8_t *code, size_t n);
/* Returns whether one of the instructions from `at` on uses memory with this displacement. */
bool runtime_lua_touches(const uint8_t *code, size_t n, size_t at, int32_t displacement);
/* Returns the offset of the end of `or $value, disp(reg)`; 0: there is no such instruction. */
size_t runtime_lua_or_store(const uint8_t *code, size_t n, int32_t displacement, int64_t value);

/* lua_rows.c: unwind rows of a file */
/* Finds the rule that gives the CFA at this address; false: no row has one. */
bool runtime_lua_rule_at(const struct elf_index *index, uint64_t address, struct pf_rule *ret);
/* Returns the end of the function whose body contains the address `body`; at most end. */
uint64_t runtime_lua_function_end(const struct elf_index *index, uint64_t body, uint64_t end);

/* ---- lua_proto.c: reads functions of a Lua program from the process's memory ---- */

struct lua_proto {
	uint64_t address;
	uint16_t cookie;
	uint64_t k, protos, lines, abslines, locals, upvalues, source;
	uint32_t n_code, n_k, n_protos, n_lines, n_abslines, n_locals, n_upvalues;
	uint32_t line_defined;
	uint32_t *code;
};
#define LUA_CODE_MAX   (1u << 20) /* instructions read of a function; the language allows 2^25 */
#define LUA_LOCALS_MAX 65536	  /* local variables of a function that are read */
struct lua_state {
	const struct lua_layout *layout;
	struct lua_proto *protos; /* a direct-mapped cache */
	size_t code_bytes;	  /* bytes of code in the cache */
	/* Addresses that learn() found, so that the next learn() need not search. */
	uint64_t ident, text, text_end;
};
struct lua_reader {
	struct lua_state *state;
	const struct lua_layout *l;
	struct memory *m;
};
/*
 * Reads the function of a frame. a: the frame's first word. *ret is valid until the next call.
 * -ESTALE: another function is at this address now.
 */
int runtime_lua_proto_get(const struct lua_reader *r, uint64_t a, const struct lua_proto **ret);
void runtime_lua_protos_free(struct lua_state *s);
uint32_t runtime_lua_line(const struct lua_reader *r, const struct lua_proto *p, uint32_t pc);
/* Finds the name of the n-th local variable (counted from 1) that exists at pc. -ENOENT: none. */
int runtime_lua_local(const struct lua_reader *r, const struct lua_proto *p, uint32_t n,
		      uint32_t pc, char **ret);
/* Reads constant n of a function. -ENOENT: the constant is not a string. */
int runtime_lua_constant(const struct lua_reader *r, const struct lua_proto *p, uint32_t n,
			 char **ret);
int runtime_lua_upvalue(const struct lua_reader *r, const struct lua_proto *p, uint32_t n,
			char **ret);
/*
 * Finds the source of a function. *ret_file: the file's path, or the text that the program has
 * instead. *ret_short: the short form that Lua uses in its messages (luaO_chunkid).
 */
int runtime_lua_source(const struct lua_reader *r, const struct lua_proto *p, char **ret_file,
	       char **ret_short);

/* ---- lua_name.c: the name with which a function was called, from its caller's code ---- */

/*
 * Finds the name with which the instruction at pc called a function; a new string. -ENOENT: the
 * call has no name.
 */
int runtime_lua_called_name(const struct lua_reader *r, const struct lua_proto *caller, uint32_t pc,
		    char **ret);
