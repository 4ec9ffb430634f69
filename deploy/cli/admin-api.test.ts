import { afterEach, expect, it, vi } from 'vitest'
import { type ClusterNode, DeploymentApi } from './admin-api.ts'

afterEach(() => void vi.unstubAllGlobals())

it.each([
  ['http://a:1', 'http://inside:1/worker/2', 'http://a:1/worker/2/admin/drain'],
  ['http://a:1/', 'http://inside:1/worker/2', 'http://a:1/worker/2/admin/drain'],
  ['http://a:1/worker/2', 'http://inside:1/worker/2', 'http://a:1/worker/2/admin/drain'],
  ['http://a:1', 'http://inside:1', 'http://a:1/admin/drain'],
  ['http://a:1', undefined, 'http://a:1/admin/drain'],
])(
  'ADMIN_URL %s with a node at %s: the request goes to that worker alone',
  async (adminUrl, own, expected) => {
    const fetched = vi.fn(async (_url: string) => new Response('{}'))
    vi.stubGlobal('fetch', fetched)
    const config = { controlUrl: '', adminUrl, controlApiTokens: undefined, internalToken: undefined }
    const node = { node_id: 'n', self: true, ...(own !== undefined && { admin_url: own }) }
    await new DeploymentApi(config).node('POST', '/admin/drain', {}, node as ClusterNode)
    expect(fetched.mock.calls[0]![0]).toBe(expected)
  },
)

it.each([
  ['null'],
  ['[]'],
  ['{}'],
  ['{"nodes":{}}'],
  ['{"nodes":[null]}'],
  ['{"nodes":[{"node_id":"a"}]}'],
  ['<html>'],
])('says which variable is wrong if another service answers %s', async (text) => {
  vi.stubGlobal('fetch', async () => new Response(text))
  const config = {
    controlUrl: '',
    adminUrl: 'http://a:1',
    controlApiTokens: undefined,
    internalToken: undefined,
  }
  await expect(new DeploymentApi(config).nodes()).rejects.toThrow(
    'http://a:1 answered 200 with nothing that roomful says: is ADMIN_URL right?',
  )
})
