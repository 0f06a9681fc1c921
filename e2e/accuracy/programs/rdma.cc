// SPDX-License-Identifier: Apache-2.0

// rdma: requests in C++, by both interfaces of libibverbs. Its protocol is told.h's.
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "rdma.h"

namespace fabric
{
// Memory that is registered as long as the object lives.
class Region
{
      public:
	explicit Region(size_t n) : data(n), mr(ibv_reg_mr(pds[0], data.data(), n, 0))
	{
		MADE(mr);
	}
	~Region()
	{
		WORKS(ibv_dereg_mr(mr));
	}
	Region(const Region &) = delete;

	ibv_sge part(uint32_t length) const
	{
		return {reinterpret_cast<uintptr_t>(data.data()), length, mr->lkey};
	}

      private:
	std::vector<char> data;
	ibv_mr *mr;
};

class Queue
{
      public:
	virtual ~Queue() = default;
	virtual void put(ibv_wr_opcode opcode, const std::vector<ibv_sge> &parts) = 0;
};

class Posted : public Queue
{
      public:
	explicit Posted(ibv_qp *qp) : qp(qp)
	{
	}
	void put(ibv_wr_opcode opcode, const std::vector<ibv_sge> &parts) override
	{
		ibv_send_wr wr = {}, *bad;

		wr.sg_list = const_cast<ibv_sge *>(parts.data());
		wr.num_sge = static_cast<int>(parts.size());
		wr.opcode = opcode;
		if (int error = ibv_post_send(qp, &wr, &bad))
			throw std::system_error(error, std::generic_category());
	}

      private:
	ibv_qp *qp;
};

class Built : public Queue
{
      public:
	explicit Built(ibv_qp *qp) : qp(ibv_qp_to_qp_ex(qp))
	{
	}
	void put(ibv_wr_opcode opcode, const std::vector<ibv_sge> &parts) override
	{
		ibv_wr_start(qp);
		if (opcode == IBV_WR_SEND)
			ibv_wr_send(qp);
		else
			ibv_wr_rdma_write(qp, 1, 4096);
		ibv_wr_set_sge_list(qp, parts.size(), parts.data());
		WORKS(ibv_wr_complete(qp));
	}

      private:
	ibv_qp_ex *qp;
};
} // namespace fabric

static std::unique_ptr<fabric::Queue> posted, built;
static std::unique_ptr<fabric::Region> region;

FUNCTION(makes_region)
{
	region = std::make_unique<fabric::Region>(8000);
}

FUNCTION(sends)
{
	posted->put(IBV_WR_SEND, {region->part(1000)});
}

FUNCTION(writes_parts)
{
	posted->put(IBV_WR_RDMA_WRITE, {region->part(200), region->part(20), region->part(2)});
}

FUNCTION(builds)
{
	built->put(IBV_WR_SEND, {region->part(3000), region->part(30)});
}

FUNCTION(builds_writes)
{
	built->put(IBV_WR_RDMA_WRITE, {region->part(4000)});
}

FUNCTION(in_lambda)
{
	auto twice = [](const std::function<void(uint32_t)> &f) {
		f(500);
		f(50);
	};
	twice([](uint32_t n) { posted->put(IBV_WR_RDMA_READ, {region->part(n)}); });
}

FUNCTION(of_thread)
{
	built->put(IBV_WR_SEND, {region->part(700)});
}

static void starts_thread()
{
	std::thread(of_thread).join();
}

FUNCTION(registers)
{
	fabric::Region one(6000), other(600);
}

FUNCTION(throws)
{
	fail_after(0, EIO);
	try {
		posted->put(IBV_WR_SEND, {region->part(1000)});
	} catch (const std::system_error &) {
		return;
	}
	fail("no failure");
}

static sums only(standin_operation operation, uint64_t bytes)
{
	sums s = {};

	s.bytes[operation] = bytes;
	return s;
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	open_devices();
	wait_for_order();
	ibv_qp *first = make_pair(0, IBV_QPT_RC, 0);
	ibv_qp *second =
		make_pair(1, IBV_QPT_RC, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
	show(first);
	show_extended(second);
	await_counts();
	posted = std::make_unique<fabric::Posted>(first);
	built = std::make_unique<fabric::Built>(second);
	posts("makes_region", makes_region, "@standin_0", only(STANDIN_REGISTER, 8000));
	posts("sends", sends, "RC@standin_0", only(STANDIN_SEND, 1000));
	posts("writes_parts", writes_parts, "RC@standin_0", only(STANDIN_WRITE, 222));
	posts("builds", builds, "RC@standin_1", only(STANDIN_SEND, 3030));
	posts("builds_writes", builds_writes, "RC@standin_1", only(STANDIN_WRITE, 4000));
	posts("in_lambda", in_lambda, "RC@standin_0", only(STANDIN_READ, 550));
	posts("of_thread", starts_thread, "RC@standin_1", only(STANDIN_SEND, 700));
	posts("registers", registers, "@standin_0", only(STANDIN_REGISTER, 6600));
	posts("throws", throws, "", sums{});
	compare_with_library();
	end();
}
