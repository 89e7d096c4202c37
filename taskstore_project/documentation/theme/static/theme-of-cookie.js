// Before anything is drawn, so that the page does not flash: the theme that the console keeps in a cookie.

const theme = document.cookie.match(/(?:^|; )theme=(light|dark)(?:;|$)/);
if (theme) document.documentElement.dataset.theme = theme[1];
