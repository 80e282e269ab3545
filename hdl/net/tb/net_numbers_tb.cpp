// Notifications of sessions in any order, read at any time: the last notification is visible.
#include "clocked.hpp"

using namespace bench;

namespace {

struct Session {
    bool opened = false, ended = false, dead = false, shut = false;
    uint32_t next = 0, una = 0;
};

}  // namespace

TEST(the_last_notification_is_visible) {
    Clocked dut;
    dut->rcv_notify = dut->rcv_arrived = dut->open = dut->notify = dut->notify_wake = dut->release_valid = 0;
    dut.reset();
    Session sessions[16];
    bool arrived = false, woken = false;
    unsigned arrived_at = 0, woken_at = 0;
    for (int i = 0; i < 50000; i++) {
        auto pick = [&] { return dut.random.below(16); };
        unsigned opens = pick(), notifies = pick(), comes = pick(), leaves = pick();
        dut->open = dut.random.percent(10) && !sessions[opens].opened;
        dut->open_at = opens;
        dut->open_una = static_cast<uint32_t>(dut.random.next());
        // A session is notified once it is open, and there is no other notification in the cycle in
        // which a session is opened.
        dut->notify = !dut->open && sessions[notifies].opened && dut.random.percent(40);
        dut->notify_at = notifies;
        dut->notify_una = static_cast<uint32_t>(dut.random.next());
        dut->notify_dead = dut.random.percent(10);
        dut->notify_shut = dut.random.percent(20);
        dut->notify_wake = dut.random.percent(50);
        if (dut->open) comes = opens;
        dut->rcv_notify = dut->open || (sessions[comes].opened && dut.random.percent(40));
        dut->rcv_at = comes;
        dut->rcv_notify_next = static_cast<uint32_t>(dut.random.next());
        dut->rcv_notify_ended = dut.random.percent(10);
        dut->rcv_arrived = dut->rcv_notify && dut.random.percent(50);
        dut->release_valid = sessions[leaves].dead && sessions[leaves].opened && !(dut->notify && notifies == leaves) &&
            !(dut->open && opens == leaves) && dut.random.percent(20);
        dut->release_at = leaves;
        unsigned stream = pick(), sent = pick();
        dut->rcv_of = stream;
        dut->una_of = sent;
        dut.settle();
        if (sessions[stream].opened)
            check(dut->rcv_next == sessions[stream].next && dut->rcv_ended == sessions[stream].ended, "another stream");
        if (sessions[sent].opened) check(dut->snd_una == sessions[sent].una, "another number of bytes is acknowledged");
        for (unsigned k = 0; k < 16; k++)
            if (sessions[k].opened)
                check((dut->dead >> k & 1) == sessions[k].dead && (dut->shut >> k & 1) == sessions[k].shut, "another end");
        check(dut->arrived == arrived && (!arrived || dut->arrived_at == arrived_at), "another arrival");
        check(dut->woken == woken && (!woken || dut->woken_at == woken_at), "another one is woken");
        if (dut->open) sessions[opens] = {true, false, false, false, 0, dut->open_una};
        if (dut->rcv_notify) sessions[comes].next = dut->rcv_notify_next, sessions[comes].ended = dut->rcv_notify_ended;
        if (dut->notify) {
            Session &rcv_notify = sessions[notifies];
            rcv_notify.una = dut->notify_una;
            rcv_notify.dead = dut->notify_dead;
            rcv_notify.shut = dut->notify_shut;
        }
        if (dut->release_valid) sessions[leaves].opened = false;
        arrived = dut->rcv_arrived;
        arrived_at = comes;
        woken = dut->notify && dut->notify_wake;
        woken_at = notifies;
        dut.rise();
    }
}

BENCH_MAIN()
