// Positions that are set by the served session, by opened sessions and by ended calls in any order, compared with a map.
#include "clocked.hpp"

using namespace bench;

namespace {

constexpr unsigned kSessions = 16;

struct Marks {
    uint32_t resume = 0, begun = 0, written = 0;
    bool known = false;  // set since the reset
};

}  // namespace

TEST(the_last_setting_of_each_position_stays) {
    Clocked dut;
    auto &r = dut.random;
    Marks marks[kSessions];
    const auto idle = [&] {
        dut->own = dut->own_begin = dut->own_resume = dut->own_written = dut->ended = 0;
        for (int i = 0; i < 3; i++) dut->opened[i] = 0;
    };
    idle();
    dut.reset();
    dut->own_at = ~0u, dut->own_position = ~0u;
    dut.settle();
    const uint32_t rx = (1u << 23) - 1, tx = (1u << 23) - 1;  // net_pkg::position_bits(21)
    bool opening = false;
    unsigned opening_at = 0, opens = 0, waits = 0, ends = 0, owns = 0;
    uint32_t opening_next = 0, opening_una = 0;
    for (int i = 0; i < 200000; i++) {
        idle();
        const unsigned session = r.below(kSessions), pick = r.below(kSessions), notify = r.below(kSessions);
        const bool own = r.percent(40);
        const bool begin = own && r.percent(50), resume = own && r.percent(50), written = own && r.percent(50);
        const uint32_t at = static_cast<uint32_t>(r.next()) & rx, position = static_cast<uint32_t>(r.next()) & tx;
        const bool ended = !own && !opening && r.percent(30);
        const unsigned ended_at = r.below(kSessions);
        const uint32_t after = static_cast<uint32_t>(r.next()) & rx, to = static_cast<uint32_t>(r.next()) & tx;
        // Sessions that the board opens are not the server's.
        const bool open = (!opening || !own) && r.percent(20), active = r.percent(20);
        const unsigned open_at = r.below(kSessions);
        const auto next = static_cast<uint32_t>(r.next()), una = static_cast<uint32_t>(r.next());
        dut->session = session, dut->own = own, dut->own_begin = begin, dut->own_resume = resume, dut->own_written = written;
        dut->own_at = at, dut->own_position = position;
        dut->ended = ended, dut->ended_at = ended_at, dut->ended_after = after, dut->ended_to = to;
        dut->opened[0] = una, dut->opened[1] = next, dut->opened[2] = open_at | active << 10 | open << 11;
        dut->pick_at = pick, dut->notify_at = notify;
        dut.settle();
        check(dut->opening == opening && dut->opens == (opening && !own), "another session is opened");
        check(!opening || dut->opening_at == opening_at, "an opened session has another number");
        if (marks[pick].known) check(dut->pick_resume == marks[pick].resume, "another position for the next session");
        if (marks[session].known)
            check(dut->resume == marks[session].resume && dut->begun == marks[session].begun &&
                      dut->written == marks[session].written, "another position of the served session");
        if (marks[notify].known)
            check(dut->notify_begun == marks[notify].begun && dut->notify_written == marks[notify].written,
                  "another position for TCP");
        if (begin) marks[session].begun = at;
        if (resume) marks[session].resume = at;
        if (written) marks[session].written = position;
        if (ended) marks[ended_at] = {after, after, to, true};
        waits += opening && own, owns += own, ends += ended;
        if (opening && !own) {
            marks[opening_at] = {opening_next & rx, opening_next & rx, opening_una & tx, true};
            opening = false, opens++;
        }
        if (open && !active) opening = true, opening_at = open_at, opening_next = next, opening_una = una;
        dut.rise();
    }
    check(opens > 1000 && waits > 1000 && ends > 1000 && owns > 1000, "too few events of a kind");
}

BENCH_MAIN()
