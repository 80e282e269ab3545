// Any reply of the board's own is a well-formed HTTP response: its status, the length of its body as it announces it,
// the request's id, whether the connection lasts, and for the list and /metrics the values in the body.
#include <array>
#include <map>
#include <optional>

#include "clocked.hpp"

using namespace bench;

namespace {

// As in http_pkg.
enum State { Decide = 4, List = 6, Head, Length, Tag, TagId, HeadEnd, Body, Number, Digits, Flush, Commit };
enum Text {
    End, EndClose, EndKeep, TagText, Continue, Health, Functions, Metrics, OptionsAny, OptionsGet, OptionsPost,
    T400, T401, T404, T405Get, T405Post, T413, T417, T431, T500Long, T501, T501Method, T500Image,
    T500Kernel, T400Kernel, T503, T503Changed, T502, T504, T505
};
constexpr unsigned kMetrics = 16;

const std::map<unsigned, std::string> kStatus = {
    {Health, "200 OK"}, {Functions, "200 OK"}, {Metrics, "200 OK"}, {OptionsAny, "200 OK"}, {OptionsGet, "200 OK"},
    {OptionsPost, "200 OK"}, {T400, "400 Bad Request"}, {T401, "401 Unauthorized"}, {T404, "404 Not Found"},
    {T405Get, "405 Method Not Allowed"}, {T405Post, "405 Method Not Allowed"}, {T413, "413 Content Too Large"},
    {T417, "417 Expectation Failed"}, {T431, "431 Request Header Fields Too Large"},
    {T500Long, "500 Internal Server Error"}, {T501, "501 Not Implemented"}, {T501Method, "501 Not Implemented"},
    {T500Image, "500 Internal Server Error"}, {T500Kernel, "500 Internal Server Error"}, {T400Kernel, "400 Bad Request"},
    {T503, "503 Service Unavailable"}, {T503Changed, "503 Service Unavailable"}, {T502, "502 Bad Gateway"},
    {T504, "504 Gateway Timeout"}, {T505, "505 HTTP Version Not Supported"}};
// Fields that RFC 9110 demands of a reply, or that describe its body.
const std::map<unsigned, std::string> kField = {
    {Health, "Content-Type: text/plain"}, {Functions, "Content-Type: application/json"},
    {Metrics, "Content-Type: text/plain; version=0.0.4"}, {OptionsAny, "Allow: GET, HEAD, POST, OPTIONS"},
    {OptionsGet, "Allow: GET, HEAD, OPTIONS"}, {OptionsPost, "Allow: POST, OPTIONS"},
    {T405Get, "Allow: GET, HEAD, OPTIONS"}, {T405Post, "Allow: POST, OPTIONS"}, {T401, "WWW-Authenticate: X-API-Key"}};

struct Reply : Clocked {
    std::array<std::optional<std::string>, 64> names;
    std::array<uint64_t, kMetrics> metrics{};
    std::string id;

    Reply() {
        auto &dut = *this;
        dut->state = Commit;
        dut->writer_start = dut->find_ready = 0;
        reset();
    }

    // The eight bytes of a text from `at` on; beyond its end, anything.
    uint64_t word(const std::string &text, size_t at, uint64_t value) {
        for (size_t i = 0; i < 8 && at + i < text.size(); i++)
            value = (value & ~(0xffull << (8 * i))) | static_cast<uint64_t>(static_cast<uint8_t>(text[at + i])) << (8 * i);
        return value;
    }

    // Leads through the states as http_engine does, and returns the written bytes.
    std::string write(unsigned text, unsigned ending, bool with_body, unsigned ready) {
        auto &dut = *this;
        std::string out;
        unsigned state = Decide;
        dut->id_bytes = static_cast<uint8_t>(id.size());
        for (unsigned i = 0; i < kMetrics; i++) dut->metrics[i] = metrics[i];
        for (int cycle = 0; state != Flush; cycle++) {
            check(cycle < 12000, "the reply does not end");
            const bool first = cycle == 1;
            dut->state = static_cast<uint8_t>(state);
            dut->writer_start = first;
            if (first) {
                dut->reply = static_cast<uint8_t>(text);
                dut->ending = static_cast<uint8_t>(ending);
                dut->with_length = text == Functions;
                dut->with_body = with_body;
            }
            dut->find_ready = random.percent(ready);
            settle();
            if (dut->valid) {
                check(dut->length >= 1 && dut->length <= 8, "a word of " + std::to_string(dut->length) + " bytes");
                check(!first, "a byte before the writer has started");
                for (unsigned i = 0; i < dut->length; i++) out.push_back(static_cast<char>(dut->data >> (8 * i)));
            }
            const unsigned next = state == Decide ? text == Functions ? List : Head : dut->next;
            // The memories' words, a cycle later.
            const auto &name = names[dut->slot_of];
            const uint64_t half = name ? word(*name, 8 * dut->slot_word, 0) : random.next();
            const uint64_t part = word(id, state == TagId ? 8 * (dut->word + 1u) : 0, random.next());
            rise();
            dut->slot_used = name.has_value();
            dut->slot_name = half;
            dut->id_data = part;
            state = next;
        }
        for (const unsigned after : {static_cast<unsigned>(Flush), static_cast<unsigned>(Commit)}) {
            dut->state = static_cast<uint8_t>(after);
            settle();
            check(!dut->valid, "a byte after the reply");
            rise();
        }
        return out;
    }
};

std::string visible(Random &random, unsigned most) {
    std::string text;
    for (unsigned n = 1 + random.below(most); n; n--) text.push_back(static_cast<char>('!' + random.below(94)));
    return text;
}

// The value of the only field of this name, if there is one.
std::optional<std::string> field(const std::string &head, const std::string &name) {
    const std::string begin = "\r\n" + name + ": ";
    const size_t at = head.find(begin);
    if (at == std::string::npos) return std::nullopt;
    check(head.find(begin, at + 1) == std::string::npos, name + " twice");
    const size_t from = at + begin.size();
    return head.substr(from, head.find("\r\n", from) - from);
}

void check_list(const Reply &dut, const std::string &body) {
    std::string out;
    for (const auto &name : dut.names)
        if (name) out += (out.empty() ? "[" : ",") + ("{\"name\":\"" + *name + "\"}");
    check(body == (out.empty() ? "[" : out) + "]\n", "another list of functions");
}

// Values in the order of the lines; each is announced by a line with its type.
void check_metrics(const Reply &dut, const std::string &body) {
    unsigned values = 0;
    std::string last_type;
    for (size_t at = 0; at < body.size();) {
        const size_t end = body.find('\n', at);
        check(end != std::string::npos, "line is terminated");
        const std::string line = body.substr(at, end - at);
        at = end + 1;
        if (line.rfind("# TYPE ", 0) == 0) {
            last_type = line.substr(7, line.find(' ', 7) - 7);
            continue;
        }
        const size_t blank = line.rfind(' ');
        const std::string name = line.substr(0, std::min(line.find('{'), blank));
        check(name == last_type, "no type for " + name);
        check(values < kMetrics && std::stoull(line.substr(blank + 1)) == dut.metrics[values],
              "value " + std::to_string(values) + " is " + line.substr(blank + 1));
        values++;
    }
    check(values == kMetrics, std::to_string(values) + " values");
}

}  // namespace

TEST(replies_are_well_formed) {
    Reply dut;
    std::array<unsigned, 32> seen{};
    for (int run = 0; run < 600; run++) {
        auto &r = dut.random;
        for (auto &name : dut.names) {
            name.reset();
            if (r.percent(run % 3 ? 20 : 0)) {
                std::string fresh;
                for (unsigned n = 1 + r.below(16); n; n--) fresh.push_back(static_cast<char>('a' + r.below(26)));
                name = fresh;
            }
        }
        // Of any number of digits.
        for (auto &value : dut.metrics) value = r.percent(10) ? ~0ull >> r.below(2) : r.next() >> r.below(64);
        dut.id = r.percent(50) ? "" : visible(r, 40);
        const unsigned text = static_cast<unsigned>(Continue) + r.below(T505 - Continue + 1), ending = r.below(3);
        const bool with_body = r.percent(80);
        const std::string out = dut.write(text, ending, with_body, 20 + r.below(81));
        seen[text]++;
        if (text == Continue) {
            check(out == "HTTP/1.1 100 Continue\r\n\r\n", "another 100: " + out);
            continue;
        }
        const size_t end = out.find("\r\n\r\n");
        check(end != std::string::npos, "a head without an end: " + out);
        const std::string head = out.substr(0, end + 2), body = out.substr(end + 4);
        check(head.rfind("HTTP/1.1 " + kStatus.at(text) + "\r\n", 0) == 0, "another status: " + head);
        if (const auto found = kField.find(text); found != kField.end())
            check(head.find("\r\n" + found->second + "\r\n") != std::string::npos, "no '" + found->second + "' in " + head);
        check(field(head, "X-Request-Id").value_or("") == dut.id, "another id: " + head);
        check(field(head, "Connection").value_or("") == (ending == EndClose ? "close" : ending == EndKeep ? "keep-alive" : ""),
              "another end of the connection: " + head);
        const auto length = field(head, "Content-Length");
        check(length.has_value(), "no length: " + head);
        const bool empty = text == OptionsAny || text == OptionsGet || text == OptionsPost;
        check(with_body ? std::stoul(*length) == body.size() : body.empty(), "length " + *length + " of " + std::to_string(body.size()));
        check(empty == (std::stoul(*length) == 0), "a body for OPTIONS, or none");
        if (with_body && text == Functions) check_list(dut, body);
        if (with_body && text == Metrics) check_metrics(dut, body);
    }
    for (const auto &[text, status] : kStatus) check(seen[text] > 3, "too few replies with " + status);
}

BENCH_MAIN()
