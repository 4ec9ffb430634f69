import { readFileSync } from 'node:fs'
import { Ajv, type ValidateFunction } from 'ajv'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8')
const example = (name: string) => parse(read(`examples/${name}.yaml`))
const EXAMPLES = ['smallest', 'production', 'own-secret'] as const

/** Values that the schema allows and that have no default. */
const WITHOUT_DEFAULT = new Set([
  '.global',
  ...['.control', '.node'].flatMap((plane) => [
    `${plane}.resources.claims`,
    `${plane}.podDisruptionBudget.minAvailable`,
  ]),
])

describe('values.schema.json', () => {
  let accepts: ValidateFunction
  const problems = (values: object): string =>
    accepts(values)
      ? ''
      : accepts
          .errors!.map(
            ({ instancePath, params, keyword }) => `${instancePath} ${keyword} ${JSON.stringify(params)}`,
          )
          .join('\n')

  beforeAll(() => {
    accepts = new Ajv({
      allErrors: true,
      strict: true,
      strictRequired: false,
      allowUnionTypes: true,
      strictTypes: false,
    }).compile(JSON.parse(read('roomful/values.schema.json')))
  })

  it('accepts the defaults and every example', () => {
    expect(problems(parse(read('roomful/values.yaml')))).toBe('')
    for (const name of EXAMPLES) expect(problems(example(name)), name).toBe('')
  })

  it('contains every value with a default in the chart, and no other', () => {
    const paths = (value: unknown, schema: Record<string, never>, path = ''): string[] => {
      const { properties } = schema as { properties?: Record<string, Record<string, never>> }
      if (properties === undefined) return []
      const names = Object.keys((value ?? {}) as object)
      const wrong = Object.keys(properties).filter(
        (name) => !names.includes(name) && !WITHOUT_DEFAULT.has(`${path}.${name}`),
      )
      return [
        ...wrong.map((name) => `${path}.${name}`),
        ...names.flatMap((name) =>
          paths((value as Record<string, unknown>)[name], properties[name]!, `${path}.${name}`),
        ),
      ]
    }
    expect(paths(parse(read('roomful/values.yaml')), JSON.parse(read('roomful/values.schema.json')))).toEqual(
      [],
    )
  })

  it.each([
    ['a typo', { node: { replica: 4 } }, 'replica'],
    ['a typo at the top', { nodes: {} }, 'nodes'],
    ['a port that is none', { redis: { url: 'redis://r', ports: [70000] } }, '/redis/ports/0'],
    ['another kind of store', { redis: { url: 'http://r' } }, '/redis/url'],
    ['a log level that is none', { logLevel: 'loud' }, '/logLevel'],
    ['a tag that is a number', { image: { tag: 1 } }, '/image/tag'],
    ['an ingress without a host', { node: { ingress: { enabled: true, host: '' } } }, '/node/ingress/host'],
    ['an origin with a path', { node: { allowedOrigins: ['https://a.example/'] } }, '/node/allowedOrigins/0'],
    ['a variable that the chart sets', { node: { env: { NODE_ID: 'one' } } }, 'NODE_ID'],
    ['a secret among the variables', { control: { env: { KEYRING_SECRET: 'x' } } }, 'KEYRING_SECRET'],
    [
      'two disruption budgets at once',
      { node: { podDisruptionBudget: { maxUnavailable: 1, minAvailable: 1 } } },
      '/node/podDisruptionBudget',
    ],
  ])('refuses %s', (_, values, telling) => {
    expect(problems(values)).toContain(telling)
  })
})
