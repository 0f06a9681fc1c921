/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without call frame information, whose functions keep the stack as hand-written assembly
 * does. It calls each through a pointer. Only their instructions say where their frames are:
 * returns_test.c knows the rules, and e2e/accuracy/step runs the program one instruction at a time.
 * A label x_N is a place where returns_test.c knows the rule.
 */
	.text
	.globl _start
	.macro visit function
	lea \function(%rip), %rax
	pushq $7		/* an argument on the stack, as the functions expect */
	call *%rax
	pop %rcx
	.endm

_start:
	mov $0x1234567, %ebp	/* a number: no frame pointer */
	and $-64, %rsp
	visit plain
	visit realigned_kept
	visit realigned_stored
	visit popped_rsp
	visit openblas_small
	visit openblas_large
	visit table
	visit with_subroutine
	visit realigned_calling
	mov $60, %eax
	xor %edi, %edi
	syscall
	hlt

/* x264, dav1d, FFmpeg: pushes, then sub, all undone in reverse; rbp is a number in between */
	.balign 16
plain:
	mov 8(%rsp), %rsi
	push %rbx
	push %rbp
	push %r12
plain_1:
	sub $0x48, %rsp
plain_2:
	mov $3, %ebp
1:	dec %rbp
plain_3:
	jg 1b
	add $0x48, %rsp
	pop %r12
	pop %rbp
plain_4:
	pop %rbx
	ret

/* the same with more alignment: a register keeps the old rsp to the end */
	.balign 16
realigned_kept:
	push %rbx
	mov %rsp, %r11
	and $-32, %rsp
realigned_kept_1:
	sub $0x60, %rsp
realigned_kept_2:
	mov %rax, 8(%rsp)
	mov %r11, %rsp
	pop %rbx
	ret

/* the same, but the old rsp is stored on the stack */
	.balign 16
realigned_stored:
	push %rbx
	push %rbp
	mov %rsp, %rbp
realigned_stored_1:
	sub $0x88, %rsp
	and $-64, %rsp
realigned_stored_2:
	mov %rbp, 0x80(%rsp)
realigned_stored_3:
	mov $2, %ebp
	xor %ebx, %ebx
	mov 0x80(%rsp), %rsp
	pop %rbp
	pop %rbx
	ret

/* libjpeg-turbo: the old rsp is at [rbp], which points to the realigned stack */
	.balign 16
popped_rsp:
	push %rbp
	mov %rsp, %rax
	sub $8, %rsp
	and $-32, %rsp
popped_rsp_1:
	mov %rax, (%rsp)
	mov %rsp, %rbp
popped_rsp_2:
	lea -0x40(%rbp), %rsp
	push %rbx
	xor %eax, %eax
popped_rsp_3:
	pop %rbx
	mov %rbp, %rsp
	pop %rsp
popped_rsp_4:
	pop %rbp
	ret

/* OpenBLAS: registers are stored by mov */
	.balign 16
openblas_small:
	sub $0x40, %rsp
	mov %rbx, (%rsp)
openblas_small_1:
	mov %rbp, 8(%rsp)
openblas_small_2:
	mov $5, %ebp
	mov 0x48(%rsp), %rax
	mov (%rsp), %rbx
	mov 8(%rsp), %rbp
openblas_small_3:
	add $0x40, %rsp
	ret

/* the same with a buffer at a page's start: rbx keeps rsp */
	.balign 16
openblas_large:
	sub $0x60, %rsp
	mov %rbx, (%rsp)
	mov %rbp, 8(%rsp)
	mov %rsp, %rbx
	sub $0x1080, %rsp
	and $-0x1000, %rsp
openblas_large_1:
	mov $5, %ebp
openblas_large_2:
	mov %rbx, %rsp
	mov (%rsp), %rbx
	mov 8(%rsp), %rbp
	add $0x60, %rsp
	ret

/* dav1d: a jump through a table, to code that nothing else leads to */
	.balign 16
table:
	push %rbp
	lea distances(%rip), %rbp
	movslq 4(%rbp), %rax
table_1:
	add %rbp, %rax
	jmp *%rax
table_2:
	mov $1, %ebp
	jmp 2f
table_3:
	mov $2, %ebp
table_4:
2:	pop %rbp
	ret

/* x264's trellis: a subroutine for the file's own use sets rbp, or finds it set */
	.balign 16
with_subroutine:
	push %rbx
	push %rbp
	sub $0x28, %rsp
	call sets_rbp
with_subroutine_1:
	call finds_rbp
	add $0x28, %rsp
	pop %rbp
	pop %rbx
	ret
	.balign 16
sets_rbp:
	mov 0x10(%rsp), %rbp
finds_rbp:
	lea (%rbp, %rbp), %rbx
	ret

/* x264's hadamard_ac: the old rsp is in a register that the subroutine happens to keep */
	.balign 16
realigned_calling:
	mov %rsp, %rcx
	and $-32, %rsp
	sub $0x60, %rsp
realigned_calling_1:
	call keeps_rcx
realigned_calling_2:
	mov %rcx, %rsp
	ret
	.balign 16
realigned_spoiled:
	mov %rsp, %rcx
	and $-32, %rsp
realigned_spoiled_1:
	call spoils_rcx
	mov %rcx, %rsp
	ret
	.balign 16
keeps_rcx:
	test %eax, %eax
	je 1f
	mov $1, %eax
1:	ret
	.balign 16
spoils_rcx:
	mov $1, %ecx
	ret

/* Nothing leads here but a jump from elsewhere, with something else on the stack. */
	.balign 16
unproved:
	and $-32, %rsp
unproved_1:
	nop
	ret

/* GHC's code: its stack is in rbp, and it ends with a jump to what is on top of that */
	.balign 16
haskell:
	lea -0x18(%rbp), %rax
	cmp %r15, %rax
haskell_1:
	add $8, %rbp
	jmp *(%rbp)
	.balign 16
calls_haskell:
	lea haskell(%rip), %rax
	ret

	.section .rodata
	.balign 4
distances:
	.long table_2 - distances, table_3 - distances
