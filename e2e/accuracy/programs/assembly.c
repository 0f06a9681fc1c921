/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assembly: functions written by hand. with_cfi pushes registers, and its tables describe this.
 * without_cfi (built with -DWITHOUT_CFI) is a leaf without a frame and without tables. prologues
 * consists mostly of `push %rbp`, `ret` and the instructions between them.
 */
#include "burn.h"

void with_cfi(uint64_t n);
void with_cfi_inner(uint64_t n);
void without_cfi(uint64_t n);
void prologues(uint64_t n);

__asm__(".text\n"
	".globl with_cfi, with_cfi_inner, without_cfi, prologues\n"
	".type with_cfi, @function\n"
	"with_cfi:\n"
	"	.cfi_startproc\n"
	"	push %r15\n	.cfi_adjust_cfa_offset 8\n	.cfi_rel_offset r15, 0\n"
	"	push %rbp\n	.cfi_adjust_cfa_offset 8\n	.cfi_rel_offset rbp, 0\n"
	"	sub $168, %rsp\n .cfi_adjust_cfa_offset 168\n"
	"	mov $12345, %ebp\n" /* no frame pointer */
	"	call with_cfi_inner\n"
	"	add $168, %rsp\n .cfi_adjust_cfa_offset -168\n"
	"	pop %rbp\n	.cfi_adjust_cfa_offset -8\n	.cfi_restore rbp\n"
	"	pop %r15\n	.cfi_adjust_cfa_offset -8\n	.cfi_restore r15\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size with_cfi, .-with_cfi\n"
	".type with_cfi_inner, @function\n"
	"with_cfi_inner:\n"
	"	.cfi_startproc\n"
	"1:	push %rdi\n	.cfi_adjust_cfa_offset 8\n"
	"	imul $77777, %rdi, %rax\n"
	"	pop %rdi\n	.cfi_adjust_cfa_offset -8\n"
	"	dec %rdi\n"
	"	jnz 1b\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size with_cfi_inner, .-with_cfi_inner\n"
	".p2align 6\n"
	".type without_cfi, @function\n"
	"without_cfi:\n"
	"1:	imul $77777, %rdi, %rax\n"
	"	imul $77777, %rax, %rax\n"
	"	dec %rdi\n"
	"	jnz 1b\n"
	"	ret\n"
	".size without_cfi, .-without_cfi\n"
	".skip 64, 0xcc\n"
	".type prologues_one, @function\n"
	"prologues_one:\n"
	"	.cfi_startproc\n"
	"	push %rbp\n	.cfi_def_cfa_offset 16\n	.cfi_offset rbp, -16\n"
	"	mov %rsp, %rbp\n .cfi_def_cfa_register rbp\n"
	"	pop %rbp\n	.cfi_def_cfa rsp, 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size prologues_one, .-prologues_one\n"
	".type prologues, @function\n"
	"prologues:\n"
	"	.cfi_startproc\n"
	"	push %rbx\n	.cfi_def_cfa_offset 16\n	.cfi_offset rbx, -16\n"
	"	mov %rdi, %rbx\n"
	"1:	call prologues_one\n"
	"	dec %rbx\n"
	"	jnz 1b\n"
	"	pop %rbx\n	.cfi_def_cfa_offset 8\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size prologues, .-prologues\n");

int main(int argc, char **argv)
{
	struct share shares[] = {{"with_cfi", 0}, {"prologues", 0}, {"without_cfi", 0}};
	int n = 2;

	(void)argc;
#ifdef WITHOUT_CFI
	n = 3;
#endif
	burn_begin(argv);
	while (burn_more())
		switch (burn_random((uint64_t)n)) {
		case 0:
			BURN(shares[0], with_cfi(burn_steps()));
			break;
		case 1:
			BURN(shares[1], prologues(burn_steps() / 2));
			break;
		default:
			BURN(shares[2], without_cfi(burn_steps() / 4));
		}
	return burn_end(shares, n);
}
