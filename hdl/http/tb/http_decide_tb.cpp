// Decisions about any request with a complete head, compared with the rules, which stand here in their order.
#include "clocked.hpp"

using namespace bench;

namespace {

enum Method { Get, Head, Post, Options, Other, Unknown };
enum Route { None, Function, System, Health, Metrics, Functions, Server };
// As in http_pkg.
enum Text {
    End, EndClose, EndKeep, Tag, Continue, HealthText, FunctionsText, MetricsText, OptionsAny, OptionsGet, OptionsPost,
    T400, T401, T404, T405Get, T405Post, T413, T417, T431, T500Long, T501, T501Method, T500Image,
    T500Kernel, T400Kernel, T503, T503Changed
};
enum Next { Save, Call, List, Reply };

constexpr unsigned kRing = 1 << 14, kLeast = 4096;

}  // namespace

TEST(decisions_follow_the_rules) {
    Clocked dut;
    dut.reset();
    std::array<int, 32> texts{};
    int calls = 0, waits = 0, full = 0, ends = 0;
    for (int i = 0; i < 400000; i++) {
        auto &r = dut.random;
        const auto rarely = [&] { return r.percent(6); };
        const auto often = [&] { return r.percent(50); };
        const auto method = static_cast<Method>(r.percent(60) ? Post : r.below(6));
        const auto route = static_cast<Route>(r.percent(50) ? Function : r.below(7));
        const bool http10 = rarely(), close = rarely(), keep = often(), expect = r.percent(20), unexpected = rarely();
        const bool continued = often(), coded = rarely(), bad = rarely(), has_length = often(), has_host = !rarely();
        const bool too_long = rarely(), length_over = rarely(), stranger = rarely(), all_there = often();
        const bool arrived_all = often(), stale = rarely(), failed = rarely();
        const bool pending = r.percent(30), together = !pending && r.percent(30);
        const unsigned length = r.below(often() ? 200 : 1u << 20);
        const unsigned space = rarely() ? r.below(kLeast) : r.below(kRing + 1);
        dut->method = method, dut->route = route, dut->http10 = http10, dut->close = close, dut->keep = keep;
        dut->expect_100 = expect, dut->unexpected = unexpected, dut->continued = continued, dut->coded = coded;
        dut->together = together, dut->bad = bad, dut->has_length = has_length, dut->has_host = has_host;
        dut->too_long = too_long, dut->body_length = length, dut->pending = pending, dut->length_over = length_over;
        dut->stranger = stranger, dut->all_there = all_there, dut->arrived_all = arrived_all, dut->stale = stale;
        dut->failed = failed, dut->free_space = static_cast<uint16_t>(space);
        dut.settle();

        // Whether the connection persists (RFC 9112 section 9.3).
        const bool persists = !close && (!http10 || keep);
        bool closes = !persists, must_end = false, gives_up = false;
        Next next = Reply;
        Text text = End;
        // With two lengths, or without knowing the body's, the next request's beginning is unknown.
        const bool two_lengths = pending && (http10 || has_length);
        const bool wrong_method = route == Function ? method != Post : method != Get && method != Head;
        const bool has_space = space >= std::min(kRing, kLeast + 4 * length);
        bool continues = false;
        if (coded) text = T501, must_end = true;
        else if (too_long || length_over) text = T413, must_end = true;
        else if (two_lengths) text = T400, must_end = true;
        else if (bad || (!http10 && !has_host)) text = T400;
        else if (unexpected) text = T417;
        else if (method == Unknown) text = T501Method;
        const bool refused = text != End;
        must_end |= refused && unexpected;
        if (refused) {}
        else if (stranger) text = T401;
        else if (route == None || route == System) text = T404;
        else if (method == Options) text = route == Server ? OptionsAny : route == Function ? OptionsPost : OptionsGet;
        else if (wrong_method) text = route == Function ? T405Post : T405Get;
        else if (route == Health) text = HealthText;
        else if (route == Metrics) text = MetricsText;
        else if (route == Functions) text = FunctionsText, next = List;
        else if (failed) text = T503;
        else if (stale) text = T503Changed;
        else if (!pending && (together || all_there) && has_space) next = Call;
        else if (expect && !continued && (pending || !all_there)) text = Continue, continues = true;
        else next = Save, gives_up = arrived_all && !together && !all_there;
        // Whether a client that waits for 100 sends the body after another reply is unknown.
        if (expect && !continued && (refused || bad || stranger || route != Function || wrong_method || (pending && stale)))
            must_end = true;
        if (space < kLeast) next = Save, continues = false;

        check(dut->too_full == (space < kLeast), "another least space");
        check(dut->saves == (next == Save) && dut->calls == (next == Call) && dut->lists == (next == List) &&
                  dut->heads == (next == Reply), "another next state");
        check(dut->replies == (next == Reply || next == List), "a reply without a decision for it, or none");
        check(dut->continues == continues, "another decision about 100");
        check(next == Call || next == Save || dut->text == text, "text " + std::to_string(dut->text) + " instead of " + std::to_string(text));
        if (next == Reply || next == List) {
            closes |= must_end;
            check(dut->closing == closes, "the connection ends, or does not");
            check(dut->ending == (closes ? EndClose : http10 ? EndKeep : End), "another end of the header");
            check(dut->with_body == (method != Head), "a body for HEAD, or none");
            check(dut->listing == (next == List) && dut->with_length == (next == List), "another reply's list");
            texts[text]++;
        } else {
            check(!dut->listing, "lists only with a reply");
        }
        if (next == Save && space >= kLeast) check(dut->ends == gives_up, "it waits for a body that cannot arrive, or does not");
        calls += next == Call, waits += next == Save, full += space < kLeast, ends += next == Save && gives_up;
        dut.rise();
    }
    check(calls > 1000 && waits > 1000 && full > 100 && ends > 100, "too few calls, or decisions to wait");
    for (const Text text : {Continue, HealthText, FunctionsText, MetricsText, OptionsAny, OptionsGet, OptionsPost, T400, T401, T404, T405Get,
                            T405Post, T413, T417, T501, T501Method, T503, T503Changed})
        check(texts[text] > 10, "too few replies with text " + std::to_string(text));
}

BENCH_MAIN()
