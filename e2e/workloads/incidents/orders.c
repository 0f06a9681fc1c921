/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes orders with eight threads, all of which keep one lock while they ask the warehouse, a
 * process beside it that answers after 20 ms. So seven of eight wait for the lock. Two more threads
 * wait for mails to send, which is no fault: there are none.
 */
#include "work.h"
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t stock = PTHREAD_MUTEX_INITIALIZER, mails = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mail_is_there = PTHREAD_COND_INITIALIZER;
static int warehouse;

FUNCTION void ask_warehouse(void)
{
	char c = 'x';

	if (write(warehouse, &c, 1) != 1 || read(warehouse, &c, 1) != 1)
		abort();
}

FUNCTION void reserve_stock(void)
{
	pthread_mutex_lock(&stock);
	ask_warehouse();
	pthread_mutex_unlock(&stock);
}

FUNCTION void place_order(void)
{
	reserve_stock();
	compute(1000);
}

FUNCTION void return_goods(void)
{
	reserve_stock();
	compute(1000);
}

FUNCTION void *serve_orders(void *arg)
{
	for (;;) {
		place_order();
		place_order();
		return_goods();
	}
	return arg;
}

FUNCTION void *send_mails(void *arg)
{
	pthread_mutex_lock(&mails);
	for (;;)
		pthread_cond_wait(&mail_is_there, &mails);
	return arg;
}

FUNCTION void answer_orders(int orders)
{
	prctl(PR_SET_NAME, "warehouse");
	for (char c; read(orders, &c, 1) == 1;) {
		pause_us(20000);
		if (write(orders, &c, 1) != 1)
			abort();
	}
}

int main(void)
{
	int ends[2];
	char name[16];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		abort();
	switch (fork()) {
	case -1:
		abort();
	case 0:
		close(ends[0]);
		answer_orders(ends[1]);
		return 0;
	}
	close(ends[1]);
	warehouse = ends[0];
	for (int i = 1; i <= 8; i++) {
		snprintf(name, sizeof(name), "order-%d", i);
		start(name, serve_orders);
	}
	start("mail-1", send_mails);
	start("mail-2", send_mails);
	for (;;)
		pause();
}
