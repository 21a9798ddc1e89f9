import './styles/tokens.css';
import './styles/base.css';
import { mount } from 'svelte';
import App from './app/App.svelte';
import { applyTheme } from './app/settings.svelte';

applyTheme();
// Relative, the icon's address would be of another folder once the page's address changes.
for (const icon of document.querySelectorAll<HTMLLinkElement>('link[rel=icon]')) icon.setAttribute('href', icon.href);
const target = document.getElementById('app');
if (target) mount(App, { target });
