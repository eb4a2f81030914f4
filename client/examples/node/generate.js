// Streams a continuation of a prompt, and continues with another replica when one dies.
//
//   TLM_PROTO_DIR=proto node generate.js TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]
//
// TLM_PROTO_DIR holds tlm/v1; TLM_CA_FILE (PEM) asks for TLS, TLM_API_KEY is sent with every call:
// with TLS, or to this host.
'use strict';
const fs = require('fs');
const path = require('path');
const { setTimeout: sleep } = require('timers/promises');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const TIMEOUT = 60_000; // milliseconds, for the whole call
const ROUNDS = 5; // how often all targets are tried before giving up
const PAUSE = 200; // milliseconds, between rounds
// The targets that a key may travel to unencrypted.
const THIS_HOST = /^(localhost|127(\.[0-9]+){3}|\[::1\])(:[0-9]+)?$/;
const PROTO_DIR = process.env.TLM_PROTO_DIR || 'proto';

// 64-bit numbers, such as seeds, as strings: a JavaScript number would round them.
const { tlm } = grpc.loadPackageDefinition(
  protoLoader.loadSync('tlm/v1/language_model.proto', { includeDirs: [PROTO_DIR], longs: String }),
);

function connect(target) {
  const ca = process.env.TLM_CA_FILE;
  if (!ca && process.env.TLM_API_KEY && !THIS_HOST.test(target)) {
    throw new Error(`the API key would travel to ${target} unencrypted: set TLM_CA_FILE`);
  }
  const credentials = ca
    ? grpc.credentials.createSsl(fs.readFileSync(ca))
    : grpc.credentials.createInsecure();
  return new tlm.v1.LanguageModel(target, credentials);
}

function callMetadata() {
  const metadata = new grpc.Metadata();
  if (process.env.TLM_API_KEY) metadata.set('authorization', `Bearer ${process.env.TLM_API_KEY}`);
  return metadata;
}

// True if another replica may answer the request that one did not, after `received` tokens.
function mayGoOn({ code, details }, received) {
  switch (code) {
    case grpc.status.UNAVAILABLE: // connection refused or lost, draining
    case grpc.status.CANCELLED: // by the server: this program cancels nothing
      return true;
    case grpc.status.UNKNOWN: // a broken stream
      return details.includes('Stream removed');
    case grpc.status.INTERNAL: // a broken stream
      return details.includes('RST_STREAM');
    case grpc.status.FAILED_PRECONDITION: // in mid-stream: that replica serves another model
      return received > 0;
    default:
      return false;
  }
}

// Yields pieces of text.
async function* generate(clients, request, deadline) {
  const ids = [];
  let started = null;
  request = { ...request, output: { ...request.output, tokenIds: true } };
  const attempts = ROUNDS * clients.length;
  for (let attempt = 0; ; ++attempt) {
    if (attempt > 0 && attempt % clients.length === 0) await sleep(PAUSE);
    try {
      const events = clients[attempt % clients.length].Generate(request, callMetadata(), {
        deadline,
      });
      for await (const event of events) {
        started ??= event.started;
        if (!event.tokens) continue;
        ids.push(...(event.tokens.tokens ?? []).map((token) => token.id));
        if (event.tokens.text) yield event.tokens.text;
      }
      return;
    } catch (error) {
      if (!mayGoOn(error, ids.length) || attempt === attempts - 1) throw error;
    }
    if (ids.length > 0) {
      request.sampling = { ...request.sampling, seed: started.effective.seed };
      request.resume = { generatedTokenIds: ids, fingerprint: started.fingerprint };
    }
  }
}

function report(error) {
  console.error(`${grpc.status[error.code] ?? error.name}: ${error.details ?? error.message}`);
  const [bytes] = error.metadata?.get('grpc-status-details-bin') ?? [];
  if (!bytes) return;
  const root = new protobuf.Root();
  root.resolvePath = (origin, target) => path.join(PROTO_DIR, target);
  root.loadSync(['google/rpc/status.proto', 'google/rpc/error_details.proto']);
  for (const detail of root.lookupType('google.rpc.Status').decode(bytes).details) {
    const name = detail.type_url.split('/').pop();
    const message = root.lookupType(name).decode(detail.value);
    if (name === 'google.rpc.BadRequest') {
      for (const { field, description } of message.fieldViolations) {
        console.error(`field ${field}: ${description}`);
      }
    } else if (name === 'google.rpc.ErrorInfo') {
      console.error(`reason ${message.reason}`);
    } else if (name === 'google.rpc.RetryInfo') {
      const { seconds, nanos } = message.retryDelay;
      console.error(`try again in ${Number(seconds) + nanos / 1e9} s`);
    }
  }
}

async function main(targets, prompt, maxNewTokens = '60') {
  if (prompt === undefined) {
    console.error('usage: generate.js TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]');
    process.exitCode = 2;
    return;
  }
  const request = {
    prompt,
    sampling: { seed: '1' },
    stopping: { maxNewTokens: Number(maxNewTokens) },
  };
  let clients = [];
  try {
    clients = targets.split(',').map(connect);
    for await (const text of generate(clients, request, Date.now() + TIMEOUT)) {
      process.stdout.write(text);
    }
    process.stdout.write('\n');
  } catch (error) {
    report(error);
    process.exitCode = 1;
  }
  clients.forEach((client) => client.close());
}

main(...process.argv.slice(2));
