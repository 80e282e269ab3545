// Techmap rules for Yosys: move a constant on the left of a comparison to the right. Yosys' own cmp2softlogic.v
// confuses comparisons with and without equality if the constant is on the left.
(* techmap_celltype = "$ge $gt $le $lt" *)
module mirrored (A, B, Y);
  parameter A_WIDTH = 0;
  parameter B_WIDTH = 0;
  parameter Y_WIDTH = 0;
  parameter A_SIGNED = 0;
  parameter B_SIGNED = 0;
  parameter _TECHMAP_CELLTYPE_ = "";
  parameter _TECHMAP_CONSTMSK_A_ = 0;
  parameter _TECHMAP_CONSTMSK_B_ = 0;

  (* force_downto *)
  input [A_WIDTH-1:0] A;
  (* force_downto *)
  input [B_WIDTH-1:0] B;
  (* force_downto *)
  output [Y_WIDTH-1:0] Y;

  generate
    if (!(&_TECHMAP_CONSTMSK_A_) || &_TECHMAP_CONSTMSK_B_ || A_SIGNED || B_SIGNED)
      wire _TECHMAP_FAIL_ = 1;
    else if (_TECHMAP_CELLTYPE_ == "$lt")
      assign Y = B > A;
    else if (_TECHMAP_CELLTYPE_ == "$le")
      assign Y = B >= A;
    else if (_TECHMAP_CELLTYPE_ == "$gt")
      assign Y = B < A;
    else
      assign Y = B <= A;
  endgenerate
endmodule
