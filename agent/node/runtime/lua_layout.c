/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lua's structures on x86-64, from lobject.h, lstate.h and lopcodes.h of 5.1.5, 5.2.4, 5.3.6 and 5.4.4.
 * CommonHeader {next 0, tt 8, marked 9} begins each object; a value is {8 bytes, tag at 8}, 16 bytes.
 */
#include "node/runtime/lua.h"

static const struct lua_layout layouts[] = {
	{
		.minor = 1,
		.kernel = {
			.opcode_5_1 = 28,
			.l_ci = 40,
			.ci_func = 8,
			.ci_savedpc = 24,
			.lua_mask = PF_LUA_5_1_LUA,
			.lua_is = PF_LUA_5_1_LUA,
			.own_mask = PF_LUA_5_1_TAIL,
			.closure_proto = 32,
			.proto_code = 24,
			.proto_sizes = 80,
			.proto_line = 16,
		},
		.k = 16, .code = 24, .protos = 32, .lines = 40, .locals = 48, .upvalues = 56,
		.source = 64, .n_upvalues = 72, .n_k = 76, .n_lines = 84, .n_protos = 88,
		.n_locals = 92, .line_defined = 96, .nups = 112,
		.proto_tag = 9,
		.upvalue_size = 8,
		.op_bits = 6,
		.dispatch_mask = 0x3f,
		.n_opcodes = 38,
		.tail = PF_LUA_5_1_TAIL,
	},
	{
		.minor = 2,
		.kernel = {
			.l_ci = 32,
			.ci_savedpc = 56,
			.ci_status = 34,
			.lua_mask = 1,
			.lua_is = 1,
			.entry_mask = 4, /* CIST_REENTRY is not there */
			.own_mask = 64,
			.closure_proto = 24,
			.proto_code = 24,
			.proto_sizes = 88,
			.proto_line = 16,
		},
		.k = 16, .code = 24, .protos = 32, .lines = 40, .locals = 48, .upvalues = 56,
		.source = 72, .n_upvalues = 80, .n_k = 84, .n_lines = 92, .n_protos = 96,
		.n_locals = 100, .line_defined = 104,
		.proto_tag = 9,
		.upvalue_size = 16,
		.op_bits = 6,
		.dispatch_mask = 0x3f,
		.n_opcodes = 40,
		.tail = 64,
	},
	{
		.minor = 3,
		.kernel = {
			.l_ci = 32,
			.ci_savedpc = 40,
			.ci_status = 66,
			.lua_mask = 2,
			.lua_is = 2,
			.entry_mask = 8, /* CIST_FRESH */
			.entry_is = 8,
			.own_mask = 32 | 256,
			.caller_mask = 4,
			.closure_proto = 24,
			.proto_code = 56,
			.proto_sizes = 24,
			.proto_line = 16,
		},
		.k = 48, .code = 56, .protos = 64, .lines = 72, .locals = 80, .upvalues = 88,
		.source = 104, .n_upvalues = 16, .n_k = 20, .n_lines = 28, .n_protos = 32,
		.n_locals = 36, .line_defined = 40,
		.proto_tag = 9,
		.upvalue_size = 16,
		.op_bits = 6,
		.dispatch_mask = 0x3f,
		.n_opcodes = 47,
		.tail = 32,
		.hooked = 4,
		.finalizer = 256,
	},
	{
		.minor = 4,
		.kernel = {
			.l_ci = 32,
			.ci_savedpc = 32,
			.ci_status = 62,
			.lua_mask = 2, /* CIST_C is not there */
			.entry_mask = 4, /* CIST_FRESH */
			.entry_is = 4,
			.own_mask = 32,
			.caller_mask = 8 | 128,
			.closure_proto = 24,
			.proto_code = 64,
			.proto_sizes = 24,
			.proto_line = 20,
		},
		.k = 56, .code = 64, .protos = 72, .upvalues = 80, .lines = 88, .abslines = 96,
		.locals = 104, .source = 112, .n_upvalues = 16, .n_k = 20, .n_lines = 28,
		.n_protos = 32, .n_locals = 36, .n_abslines = 40, .line_defined = 44,
		.proto_tag = 10,
		.upvalue_size = 16,
		.op_bits = 7,
		.dispatch_mask = 0x7f,
		.n_opcodes = 83,
		.tail = 32,
		.hooked = 8,
		.finalizer = 128,
	},
};

const struct lua_layout *lua_layout(unsigned minor)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}
