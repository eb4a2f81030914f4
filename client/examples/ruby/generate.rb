# Streams a continuation of a prompt, and continues with another replica when one dies.
#
#   ruby -I STUBS generate.rb TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]
#
# TLM_CA_FILE (PEM) asks for TLS, TLM_API_KEY is sent with every call: with TLS, or to this host.
require 'grpc'
require 'google/protobuf/well_known_types' # Any#unpack
require 'google/rpc/error_details_pb'
require 'tlm/v1/language_model_services_pb'

TIMEOUT = 60 # seconds, for the whole call
ROUNDS = 5 # how often all targets are tried before giving up
PAUSE = 0.2 # seconds, between rounds
# The targets that a key may travel to unencrypted.
THIS_HOST = /\A(localhost|127(\.[0-9]+){3}|\[::1\])(:[0-9]+)?\z/

def connect(target)
  ca = ENV['TLM_CA_FILE']
  if !ca && ENV['TLM_API_KEY'] && !THIS_HOST.match?(target)
    abort "the API key would travel to #{target} unencrypted: set TLM_CA_FILE"
  end
  credentials = ca ? GRPC::Core::ChannelCredentials.new(File.read(ca)) : :this_channel_is_insecure
  Tlm::V1::LanguageModel::Stub.new(target, credentials)
end

# True if another replica may answer the request that one did not, after `received` tokens.
def may_go_on?(error, received)
  case error
  when GRPC::Unavailable then true # connection refused or lost, draining
  when GRPC::Cancelled then true # by the server: this program cancels nothing
  when GRPC::Unknown then error.details.include?('Stream removed') # a broken stream
  when GRPC::Internal then error.details.include?('RST_STREAM') # a broken stream
  when GRPC::FailedPrecondition then received.positive? # mid-stream: it serves another model
  end
end

# Yields pieces of text.
def generate(stubs, request, deadline)
  metadata = ENV['TLM_API_KEY'] ? { 'authorization' => "Bearer #{ENV['TLM_API_KEY']}" } : {}
  ids = []
  started = nil
  request.output ||= Tlm::V1::OutputOptions.new
  request.output.token_ids = true
  attempts = stubs.cycle(ROUNDS).each_with_index.to_a
  attempts.each do |stub, attempt|
    sleep PAUSE if attempt.positive? && (attempt % stubs.size).zero?
    stub.generate(request, deadline: deadline, metadata: metadata).each do |event|
      started ||= event.started
      next unless event.tokens

      ids.concat(event.tokens.tokens.map(&:id))
      yield event.tokens.text
    end
    return
  rescue GRPC::BadStatus => error
    raise if attempt == attempts.size - 1 || !may_go_on?(error, ids.size)
    next if ids.empty?

    request.sampling ||= Tlm::V1::SamplingParams.new
    request.sampling.seed = started.effective.seed
    request.resume = Tlm::V1::ResumePoint.new(generated_token_ids: ids,
                                              fingerprint: started.fingerprint)
  end
end

def report(error)
  name = GRPC::Core::StatusCodes.constants.find do |code|
    GRPC::Core::StatusCodes.const_get(code) == error.code
  end
  warn "#{name}: #{error.details}"
  (error.to_rpc_status&.details || []).each do |detail|
    if (bad = detail.unpack(Google::Rpc::BadRequest))
      bad.field_violations.each { |v| warn "field #{v.field}: #{v.description}" }
    elsif (info = detail.unpack(Google::Rpc::ErrorInfo))
      warn "reason #{info.reason}"
    elsif (retry_info = detail.unpack(Google::Rpc::RetryInfo))
      delay = retry_info.retry_delay
      warn "try again in #{delay.seconds + delay.nanos / 1e9} s"
    end
  end
end

abort 'usage: generate.rb TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]' unless [2, 3].include?(ARGV.size)

request = Tlm::V1::GenerateRequest.new(
  prompt: ARGV[1],
  sampling: Tlm::V1::SamplingParams.new(seed: 1),
  stopping: Tlm::V1::StoppingCriteria.new(max_new_tokens: (ARGV[2] || 60).to_i)
)
$stdout.sync = true
begin
  generate(ARGV[0].split(',').map { |target| connect(target) }, request, Time.now + TIMEOUT) do |text|
    print text
  end
  puts
rescue GRPC::BadStatus => error
  report(error)
  exit 1
end
