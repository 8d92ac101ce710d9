// Images for Leafcode, sent by k6: `make k6`, or
//
//   k6 run -e IMAGE_LIST=/tmp/images.txt -e URL=http://127.0.0.1:8000 docker/loadtest/k6.js
//
// IMAGE_LIST is a text file with one image file a line, by absolute path (k6 cannot list folders);
// every virtual user holds all of them, so name some dozens. With RATE, requests come at that rate
// a second, whatever became of earlier ones; without, CLIENTS wait for their answers. MAX_P99 is in
// milliseconds, API_KEY goes to a service that asks for one.
import { check } from 'k6';
import http from 'k6/http';

const URL = __ENV.URL || 'http://127.0.0.1:8000';
const DURATION = __ENV.DURATION || '10s';
const CLIENTS = Number(__ENV.CLIENTS || 8);
const RATE = Number(__ENV.RATE || 0);

const images = open(__ENV.IMAGE_LIST)
  .split('\n')
  .filter((line) => line)
  .map((line) => open(line, 'b'));
if (!images.length) {
  throw new Error(`${__ENV.IMAGE_LIST} is empty, expected one image file a line`);
}

const headers = { 'Content-Type': 'image/png' }; // any image type will do
if (__ENV.API_KEY) {
  headers.Authorization = `Bearer ${__ENV.API_KEY}`;
}

const clients = { executor: 'constant-vus', vus: CLIENTS, duration: DURATION };
const arrivals = {
  executor: 'constant-arrival-rate',
  rate: RATE,
  timeUnit: '1s',
  duration: DURATION,
  preAllocatedVUs: 50,
  maxVUs: 500,
};

export const options = {
  scenarios: { images: RATE ? arrivals : clients },
  summaryTrendStats: ['med', 'p(90)', 'p(99)', 'p(99.9)', 'max'],
  thresholds: {
    http_req_failed: ['rate<=0.01'],
    ...(__ENV.MAX_P99 ? { http_req_duration: [`p(99)<${__ENV.MAX_P99}`] } : {}),
  },
};

export default function () {
  const image = images[Math.floor(Math.random() * images.length)];
  const answer = http.post(`${URL}/v1/classify`, image, { headers });
  check(answer, {
    'status is 200': (given) => given.status === 200,
    'has predictions': (given) => given.status === 200 && given.json('predictions').length > 0,
  });
}
