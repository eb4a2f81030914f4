#include "server/batching/delivery.h"

#include <gtest/gtest.h>

#include "tests/support/collecting_reader.h"

namespace tlm {
namespace {

SampledToken Token(int32_t id) {
  SampledToken token;
  token.id = id;
  return token;
}

// Holds the delivery thread inside its call until let go.
class HoldingListener : public StreamListener {
 public:
  void OnStreamReady() override {
    MutexLock lock(&mutex_);
    ++calls_;
    changed_.NotifyAll();
    while (held_) changed_.Wait(&mutex_);
  }
  void WaitForCall() {
    MutexLock lock(&mutex_);
    while (calls_ == 0) changed_.Wait(&mutex_);
  }
  void LetGo() {
    MutexLock lock(&mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  int calls() {
    MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool held_ = true;
  int calls_ = 0;
};

TEST(DeliveryTest, TellsTheListener) {
  const auto reader = CollectingReader::Create();
  Delivery delivery;
  reader->stream()->PushToken(Token(4));
  reader->stream()->PushEnd({});
  delivery.Notify({reader->stream()});
  EXPECT_EQ(reader->WaitForEnd().token_ids(), std::vector<int32_t>{4});
}

TEST(DeliveryTest, NewsThatWaitForACallShareIt) {
  const auto holding = std::make_shared<HoldingListener>();
  const auto held_stream = std::make_shared<TokenStream>(holding);
  class Counter : public StreamListener {
   public:
    void OnStreamReady() override { ++calls; }
    int calls = 0;
  };
  const auto counter = std::make_shared<Counter>();
  const auto stream = std::make_shared<TokenStream>(counter);

  Delivery delivery;
  delivery.Notify({held_stream});
  holding->WaitForCall();
  delivery.Notify({stream, stream});
  delivery.Notify({stream});
  delivery.Notify({held_stream});  // again while its call runs: it may have taken already
  holding->LetGo();
  delivery.Stop();
  EXPECT_EQ(counter->calls, 1);
  EXPECT_EQ(holding->calls(), 2);
}

TEST(DeliveryTest, CallsFunctionsInOrderAndWhatIsDueAtTheEnd) {
  const auto holding = std::make_shared<HoldingListener>();
  std::vector<int> called;
  Delivery delivery;
  delivery.Notify({std::make_shared<TokenStream>(holding)});
  holding->WaitForCall();
  delivery.Call([&] { called.push_back(1); });
  delivery.Call([&] { called.push_back(2); });
  holding->LetGo();
  delivery.Stop();
  EXPECT_EQ(called, (std::vector<int>{1, 2}));
}

TEST(DeliveryTest, StopMakesTheCallsThatAreDue) {
  std::vector<std::shared_ptr<CollectingReader>> readers;
  std::vector<std::shared_ptr<TokenStream>> streams;
  for (int i = 0; i < 100; ++i) {
    readers.push_back(CollectingReader::Create());
    streams.push_back(readers.back()->stream());
    streams.back()->PushEnd({});
  }
  Delivery delivery;
  delivery.Notify(streams);
  delivery.Stop();
  for (const auto& reader : readers) EXPECT_EQ(reader->collected().ends.size(), 1);
}

TEST(DeliveryTest, AListenerThatIsGoneIsSkipped) {
  auto reader = CollectingReader::Create();
  const auto stream = reader->stream();
  reader.reset();
  Delivery delivery;
  delivery.Notify({stream});
  delivery.Stop();
  EXPECT_EQ(stream->listener(), nullptr);
}

}  // namespace
}  // namespace tlm
