// SPDX-License-Identifier: Apache-2.0
/* The code of the probes (two instructions each) and their notes. */
#include "probes.h"

USDT_PROBE("podflame_cuda", "launch", "4@%edi 4@%esi 4@%edx 8@%rcx 8@%r8 4@%r9d");
USDT_PROBE("podflame_cuda", "work", "8@%rdi 4@%esi 4@%edx");
USDT_PROBE("podflame_cuda", "status", "8@%rdi 4@%esi");
