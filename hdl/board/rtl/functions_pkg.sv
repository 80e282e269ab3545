// The functions that the board serves: what a request may name, and which kernel answers.
package functions_pkg;

  localparam int FUNCTIONS = 6;

  typedef logic [127:0] name_t;  // up to 15 characters, the first in bits 7:0, zeros behind

  // A string literal has its first character on top, and zeros above that.
  function automatic name_t named(input logic [127:0] literal);
    named = '0;
    for (int i = 0; i < 16; i++)
    if (literal[8*i+:8] != 8'd0) named = (named << 8) | 128'(literal[8*i+:8]);
  endfunction

  function automatic name_t function_name(input int i);
    case (i)
      0: return named("echo");
      1: return named("uppercase");
      2: return named("checksum");
      3: return named("sobel");
      4: return named("sha256");
      default: return named("aes128");
    endcase
  endfunction

  // The query parameter that becomes scalar `k` of a function's kernel; zero if there is none.
  function automatic name_t scalar_name(input int i, input int k);
    case (4 * i + k)
      8: return named("hex");
      12: return named("width");
      20: return named("key0");
      21: return named("key1");
      22: return named("key2");
      23: return named("key3");
      default: return '0;
    endcase
  endfunction

endpackage
