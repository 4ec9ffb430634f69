import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { parseAddress } from './address.ts'

it('reads the address of one server', () => {
  expect(parseAddress('redis://redis.internal')).toEqual({
    kind: 'single',
    endpoints: [{ host: 'redis.internal', port: 6379 }],
    credentials: {},
    sentinelCredentials: {},
    masterName: '',
    db: 0,
    tls: undefined,
    label: 'redis://redis.internal',
  })
  expect(parseAddress('rediss://player:p%40ss%2Fword@[::1]:7000/3')).toMatchObject({
    endpoints: [{ host: '::1', port: 7000 }],
    credentials: { username: 'player', password: 'p@ss/word' },
    db: 3,
    tls: {},
    label: 'rediss://[::1]:7000/3',
  })
  expect(parseAddress('redis://:hush@h').credentials).toEqual({ password: 'hush' })
})

it('reads the addresses of Sentinels and the name of their master', () => {
  const url = 'redis+sentinel://u:p@a:1,b,c:26380/games/2?sentinel_username=s&sentinel_password=t%26'
  expect(parseAddress(url)).toEqual({
    kind: 'sentinel',
    endpoints: [
      { host: 'a', port: 1 },
      { host: 'b', port: 26379 },
      { host: 'c', port: 26380 },
    ],
    credentials: { username: 'u', password: 'p' },
    sentinelCredentials: { username: 's', password: 't&' },
    masterName: 'games',
    db: 2,
    tls: undefined,
    label: 'redis+sentinel://a:1,b,c:26380/games/2',
  })
})

it('reads the addresses of a Cluster', () => {
  expect(parseAddress('rediss+cluster://:p@a:1,b')).toMatchObject({
    kind: 'cluster',
    endpoints: [
      { host: 'a', port: 1 },
      { host: 'b', port: 6379 },
    ],
    credentials: { password: 'p' },
    db: 0,
    tls: {},
  })
})

it('reads the certificate of a private authority', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-address-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const path = join(folder, 'ca.pem')
  writeFileSync(path, 'the certificate')
  expect(parseAddress(`rediss://h?ca=${encodeURIComponent(path)}`).tls).toEqual({ ca: 'the certificate' })
  expect(() => parseAddress('rediss://h?ca=/nowhere/ca.pem')).toThrow(/authority \/nowhere\/ca\.pem: ENOENT/)
})

it.each([
  ['http://h', 'must look like one of: redis://host:6379, '],
  ['', 'must look like one of'],
  ['redis://', 'must look like one of'],
  ['redis://a:1,b:2', 'names 2 servers: write redis+sentinel:// or redis+cluster:// for several'],
  ['redis://h:0', 'server 1 of the store URL is no address: it must be host:port'],
  ['redis+cluster://a:1,b:70000', 'server 2 of the store URL is no address'],
  ['redis+cluster://a:1,,b:2', 'server 2 of the store URL is no address'],
  ['redis://h/one', 'ends with "/one": the number of a database must be all that stands there'],
  ['redis://h/1/2', 'ends with "/1/2"'],
  ['redis+sentinel://a', 'names no master: write its name after the Sentinels, as in /mymaster'],
  ['redis+sentinel://a/m/x', 'ends with "/m/x"'],
  ['redis+cluster://a/1', 'asks for database 1: a Redis Cluster has database 0 only'],
  ['redis://h?ca=x', 'has the parameter "ca": this kind accepts none'],
  [
    'rediss+sentinel://h/m?tls=no',
    'has the parameter "tls": it accepts ca, sentinel_username, sentinel_password',
  ],
  ['redis://%zz:p@h', 'has a % that starts no escape'],
  ['redis://player@h', 'names a user without a password'],
  ['redis://u:p/w@h', 'write %2F for /, %3F for ? and %23 for #'],
  ['redis://u:p?w@h:6379', 'write %2F for /'],
  ['redis://u:p#w@h/1', 'write %2F for /'],
  ['redis://:1/2@h', 'write %2F for /'],
])('refuses %s and says what would do', (url, reason) => {
  expect(() => parseAddress(url)).toThrow(reason)
})

it.each([
  'http://u:hush@h',
  'hush',
  'redis://u:hush',
  'redis://u:hush@a:1,b',
  'redis://u:hush@h:0',
  'redis://hush@h',
  'redis://%zzhush:p@h',
  'redis://u:hush@also@h/x',
])('repeats no password of %s', (url) => {
  expect(() => parseAddress(url)).toThrow(/^(?!.*hush)/)
})
