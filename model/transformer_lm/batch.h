// One forward pass, as plain data.
#ifndef TLM_MODEL_TRANSFORMER_LM_BATCH_H_
#define TLM_MODEL_TRANSFORMER_LM_BATCH_H_

#include <cstdint>
#include <vector>

namespace tlm {

// The tokens of several sequences laid end to end. Tokens of one sequence are consecutive and in
// the order of their positions; the cache already holds every earlier position of that sequence.
struct Batch {
  std::vector<int32_t> token_ids;     // [tokens]
  std::vector<int32_t> positions;     // [tokens], absolute
  std::vector<int32_t> sequence_of;   // [tokens], row of block_tables
  std::vector<int32_t> block_tables;  // [sequences, max_blocks] ids; entries past a sequence's
                                      // blocks are 0 and never read
  int64_t sequences = 0;
  int64_t max_blocks = 0;
  std::vector<int32_t> logits_rows;  // [rows]: indices of the tokens whose logits are wanted

  int64_t tokens() const { return static_cast<int64_t>(token_ids.size()); }
  void Clear() {
    token_ids.clear();
    positions.clear();
    sequence_of.clear();
    block_tables.clear();
    logits_rows.clear();
    sequences = max_blocks = 0;
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_BATCH_H_
