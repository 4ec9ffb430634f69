import { expect, it } from 'vitest'
import { isAllowedOrigin, normalOrigin } from './origins.ts'

it.each([
  ['https://Play.Example.COM', 'https://play.example.com'],
  ['HTTPS://play.example.com', 'https://play.example.com'],
  ['https://play.example.com:443', 'https://play.example.com'],
  ['http://localhost:80', 'http://localhost'],
  ['https://play.example.com:8443', 'https://play.example.com:8443'],
  ['https://spiel.müller.example', 'https://spiel.xn--mller-kva.example'],
  ['https://*.example.com', 'https://*.example.com'],
  ['https://[::1]:4000', 'https://[::1]:4000'],
  ['capacitor://LocalHost', 'capacitor://localhost'],
])('the normal form of %s is %s', (text, normal) => {
  expect(normalOrigin(text)).toBe(normal)
})

it.each([
  'example.com',
  'https://',
  'https://a.example/',
  'https://a.example/path',
  'https://user@a.example',
  'https://a b.example',
  'https://a.*.example',
  'https://*.*.example',
  'https://a*.example',
  'https://*',
])('%s is not an origin', (text) => {
  expect(normalOrigin(text)).toBeUndefined()
})

it('allows exactly one label for *', () => {
  const allowed = new Set(['https://*.example.com', 'http://localhost:8080'])
  for (const origin of ['https://a.example.com', 'http://localhost:8080'])
    expect(isAllowedOrigin(origin, allowed), origin).toBe(true)
  for (const origin of [
    'https://example.com',
    'https://a.b.example.com',
    'http://a.example.com',
    'https://a.example.com:8443',
    'https://a.example.com.evil.example',
    'https://evil.example/.example.com',
    'http://localhost',
    'null',
  ])
    expect(isAllowedOrigin(origin, allowed), origin).toBe(false)
})
